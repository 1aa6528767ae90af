"""Nodes of autograd's graph, asked by their types: an autograd.Function of the script's may call what it keeps in `ctx`
as it likes, `name` or `variable` too.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

_LEAF = "AccumulateGrad"


def kind(node: Any) -> str:
    """As `MulBackward0`; of an autograd.Function, its name with `Backward` behind it."""
    return type(node).__name__


def operation(node: Any) -> str:
    """Its operation's name: of `MulBackward0`, `Mul`."""
    return re.sub(r"Backward\d*$", "", kind(node))


def leaf(node: Any) -> Any:
    """The tensor whose gradient is accumulated here; None where the graph goes on."""
    return node.variable if kind(node) == _LEAF else None


def behind(node: Any) -> list[Any]:
    """The nodes that its gradients go to."""
    return [after for after, _ in node.next_functions if after is not None]


def nearest(loss: Any, most: int, onward: Callable[[Any], list[Any]] = behind) -> Iterator[Any]:
    """A loss's node and those behind it, breadth first, until about so many were seen."""
    pending, seen = [loss], {loss}
    while pending and len(seen) < most:
        node = pending.pop(0)
        yield node
        new = [after for after in onward(node) if after not in seen]
        seen.update(new)
        pending += new
