"""Parameters that a trained model keeps where torch does not look: in a plain list or dictionary of its own.

Neither its optimizer nor its wrapper gets them from `parameters()`, and no checkpoint holds them. They are counted when
parameters are, as long as they have gradients, stand still and no optimizer has them:

    parameters/unlisted          how many there are
    parameters/unlisted_fresh    how many of them still hold the random numbers of a new layer, or are bare parameters

The fact `parameters/unlisted` has the names of some: `Net.adapters['lidar'].weight`.
"""

import sys
import weakref
from collections.abc import Iterator
from typing import Any

from diagd.probes import fresh, later
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS

WIDE = 64  # elements of a container that are looked at
DEEP = 2  # containers inside containers
MODULES = 4000  # of all models
SHOWN = 8  # names
ELEMENTS = 32  # of each, by which it is seen to stand still
_CONTAINERS = list, tuple, dict


class _Unlisted:
    """What the last look at the models has found."""

    def __init__(self) -> None:
        self.looks = -1
        self.kept: list[tuple[str, bool, weakref.ref[Any]]] = []  # name, whether it is in a module, parameter
        self.held: dict[str, Any] = {}  # some elements of each


UNLISTED = _Unlisted()


def look(owned: set[int], step: int) -> None:
    """Count them.

    Args:
        owned: Parameters, by id, that some optimizer has.
        step: The training step under way.
    """
    if UNLISTED.looks != NAMED.looks:
        UNLISTED.looks = NAMED.looks
        UNLISTED.kept = list(_found())
    torch = sys.modules["torch"]
    there = [(name, inside, p) for name, inside, ref in UNLISTED.kept if (p := ref()) is not None]
    fed = [(name, inside, t) for name, inside, p in there
           if id(p) not in owned and p.grad is not None and (t := later.plain(p)) is not None]  # fmt: skip
    before = UNLISTED.held
    with later.unseen(torch):
        UNLISTED.held = {name: tensor.reshape(-1)[:ELEMENTS].clone() for name, _, tensor in fed}
        again = [one for one in fed if one[0] in before]
        if not again or len({tensor.device for _, _, tensor in again}) > 1:
            SIGNALS.record("parameters/unlisted", 0.0, step)
            return
        moved = [(UNLISTED.held[name] != before[name]).any().float().reshape(1) for name, _, _ in again]
        values = torch.cat([*moved, *(fresh.spread(tensor) for _, _, tensor in again)])
        later.read(values, lambda numbers: _tell(again, numbers, step))


def _tell(fed: list[tuple[str, bool, Any]], numbers: list[float], step: int) -> None:
    """Those that hold what they held at the last count.

    Args:
        numbers: For each whether it has moved, then for each its largest absolute value and its standard deviation.
    """
    many = len(fed)
    spreads = zip(numbers[many::2], numbers[many + 1 :: 2], strict=True)
    still = [(name, not inside or fresh.as_new(tensor, *spread))
             for (name, inside, tensor), moved, spread in zip(fed, numbers[:many], spreads, strict=True)
             if not moved]  # fmt: skip
    SIGNALS.record("parameters/unlisted", float(len(still)), step)
    if still:
        SIGNALS.record("parameters/unlisted_fresh", float(sum(new for _, new in still)), step)
        SIGNALS.fact("parameters/unlisted", ", ".join(name for name, _ in still[:SHOWN]), step)


def _found() -> Iterator[tuple[str, bool, "weakref.ref[Any]"]]:
    torch = sys.modules["torch"]
    roots = [(name, root) for name, ref in NAMED.roots if (root := ref()) is not None]
    modules = [(f"{name}.{path}".rstrip("."), module) for name, root in roots
               for path, module in torch.nn.Module.named_modules(root)][:MODULES]  # fmt: skip
    seen = {id(p) for _, module in modules for p in (module.__dict__.get("_parameters") or {}).values()}
    of_torch = vars(torch.nn.Module())
    for name, module in modules:
        for leaf, value in module.__dict__.items():
            if issubclass(type(value), _CONTAINERS) and leaf not in of_torch:
                yield from _inside(torch, f"{name}.{leaf}", value, seen, DEEP)


def _inside(torch: Any, path: str, value: Any, seen: set[int], deep: int) -> Iterator[tuple[str, bool, Any]]:
    """What trains in there, each once, with its path."""
    items = list(dict.items(value) if issubclass(type(value), dict) else enumerate(value))[:WIDE]
    for key, one in items:
        label = f"{path}[{key!r}]" if type(key) in (str, int) else f"{path}[…]"
        if issubclass(type(one), torch.nn.Module):
            for leaf, parameter in torch.nn.Module.named_parameters(one):
                yield from _new(f"{label}.{leaf}", True, parameter, seen)
        elif type(one) is torch.nn.Parameter:
            yield from _new(label, False, one, seen)
        elif issubclass(type(one), _CONTAINERS) and deep > 1:
            yield from _inside(torch, label, one, seen, deep - 1)


def _new(name: str, inside: bool, parameter: Any, seen: set[int]) -> Iterator[tuple[str, bool, Any]]:
    if parameter.requires_grad and parameter.is_leaf and id(parameter) not in seen:
        seen.add(id(parameter))
        yield name, inside, weakref.ref(parameter)
