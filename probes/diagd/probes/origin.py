"""Where NaN and infinities come from: looked for once in the graph of a loss that is not finite, before its backward.

The graph holds what the forward pass has kept for the backward one, in forward order. The first operation that has kept
such a value was given it by the one before, or made it; where none has, the last one made it.

The fact `nonfinite/origin` holds the operation and the parameters behind it, a tab between them; for the operation
stands `input` where such values came in with the data, and `weight` where a parameter holds them.
"""

import sys
from collections.abc import Iterator
from typing import Any

from diagd.probes import graph, later
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS

LOOKS = 2
NAMES = 6


class _Origin:
    """How often it was looked for."""

    looks = 0
    step = -1  # of the last loss that was not finite


def look(root: Any, step: int) -> None:
    """The loss is not finite; called where that is known before the graph is gone, so not on a device."""
    follows = 0 <= step - _Origin.step <= 1 and _Origin.step >= 0
    _Origin.step = step
    if follows or _Origin.looks >= LOOKS or root.grad_fn is None:
        return  # of a stretch of such losses the first says where it began; the others' weights have it too
    _Origin.looks += 1
    torch = sys.modules["torch"]
    with later.unseen(torch):
        held = _bad_weights(torch, root)
        if held:
            SIGNALS.fact("nonfinite/origin", f"weight\t{', '.join(held[:NAMES])}", step)
            return
        node, word = _first(torch, graph.kept(root)) or (root.grad_fn, "")
    name = word or node.name().removesuffix("0").removesuffix("Backward")
    SIGNALS.fact("nonfinite/origin", f"{name}\t{', '.join(graph.behind(node)[:NAMES])}", step)


def _bad_weights(torch: Any, root: Any) -> list[str]:
    """The names of parameters that hold such values themselves, as after a step with such gradients."""
    some = [
        leaf for leaf in graph.leaves(root) if (tensor := later.plain(leaf)) is not None and tensor.device.type == "cpu"
    ]
    bad = {
        id(leaf) for leaf in some if leaf.numel() <= graph.ELEMENTS and not bool(torch.isfinite(leaf.detach()).all())
    }
    return [one.name for one, held in NAMED.held() if id(held) in bad] or ["?"] * min(len(bad), 1)


def _first(torch: Any, nodes: list[tuple[int, Any, dict[str, Any]]]) -> tuple[Any, str] | None:
    """The node that made the first such value, and a word for it if not its operation; None where none was kept."""
    kept = {id(node): named for _, node, named in nodes}
    for _, node, tensor in graph.distinct(nodes):
        if tensor.device.type != "cpu" or bool(torch.isfinite(tensor.detach()).all()):
            continue
        if any(name.startswith("result") and held is tensor for name, held in kept[id(node)].items()):
            return node, ""
        giver = next(_givers(node), None)
        return (node, "input") if giver is None else (giver, "")
    return None


def _givers(node: Any) -> Iterator[Any]:
    """The nodes whose outputs it was given, but for parameters."""
    for before, _ in node.next_functions:
        if (leaf := _end(before)) is not None and not hasattr(leaf, "variable"):
            yield before


def _end(node: Any) -> Any:
    """Where a chain of nodes with one input each ends."""
    while node is not None and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
    return node
