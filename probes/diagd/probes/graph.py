"""What the graph of a loss holds: what the forward pass has kept for the backward one, and the parameters behind it."""

from collections.abc import Iterator
from typing import Any

from diagd.probes import inventory, later, nodes
from diagd.probes.named import NAMED

NODES = 4000
TENSORS = 256
ELEMENTS = 1 << 25  # of all tensors that are looked at


def kept(root: Any) -> list[tuple[int, Any, dict[str, Any]]]:
    """Each node of the graph in forward order: its number, itself, and what it has kept by name."""
    pending, seen, found = [root.grad_fn], {root.grad_fn}, []
    while pending and len(seen) < NODES:
        node = pending.pop()
        if node is None:
            continue
        named = _saved(node)
        if named:
            found.append((node._sequence_nr(), node, named))
        for after, _ in node.next_functions:
            if after is not None and after not in seen:
                seen.add(after)
                pending.append(after)
    return sorted(found, key=lambda entry: entry[0])


def leaves(root: Any) -> list[Any]:
    """The tensors that the graph ends in: the parameters that it was made with."""
    return [leaf for node in nodes_of(root) if (leaf := nodes.leaf(node)) is not None]


def nodes_of(root: Any) -> Iterator[Any]:
    """The nodes of the graph, each once."""
    pending, seen = [root.grad_fn], {root.grad_fn}
    while pending and len(seen) < NODES:
        node = pending.pop()
        yield node
        following = {after for after, _ in node.next_functions if after is not None} - seen
        seen |= following
        pending += following


def _saved(node: Any) -> dict[str, Any]:
    """What it has kept, as it lies: nothing that hooks would have to bring back, as with checkpointing."""
    found = {}
    for name in dir(node):
        if not name.startswith("_raw_saved_"):
            continue
        try:
            raw = getattr(node, name)
            if hasattr(raw, "unpack_hook") and raw.unpack_hook is None:
                tensor = later.plain(raw.data) if raw.data is not None else None
                if tensor is not None:
                    found[name.removeprefix("_raw_saved_")] = tensor
        except (RuntimeError, AttributeError):
            continue  # it was freed
    return found


def distinct(nodes: list[tuple[int, Any, dict[str, Any]]]) -> list[tuple[int, Any, Any]]:
    """Each tensor that they have kept once, with the first node that did."""
    found: dict[tuple[Any, ...], tuple[int, Any, Any]] = {}
    elements = 0
    for order, node, named in nodes:
        for tensor in named.values():
            key = tensor.data_ptr(), tuple(tensor.shape), tensor.dtype
            if key in found or len(found) >= TENSORS or elements + tensor.numel() > ELEMENTS:
                continue
            elements += tensor.numel()
            found[key] = order, node, tensor
    return list(found.values())


def behind(node: Any) -> list[str]:
    """The parameters nearest to a node, by name: breadth first, those of one distance."""
    level, seen = [node], {node}
    for _ in range(64):
        held = [leaf for inner in level if (leaf := nodes.leaf(inner)) is not None]
        if held:
            named = [name for tensor in held if (name := NAMED.name(tensor)) is not None]
            if named:
                return named[:8]
            ids = {id(tensor) for tensor in held}
            return [found.name for found in inventory.survey().found if _parameter(found) in ids][:8]
        following = [after for inner in level for after, _ in inner.next_functions]
        level = [after for after in following if after is not None and after not in seen]
        seen.update(level)
        if not level:
            break
    return []


def _parameter(found: inventory.Found) -> int:
    return id((found.module.__dict__.get("_parameters") or {}).get(found.leaf))
