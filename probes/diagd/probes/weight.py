"""How much memory an element of a container holds, roughly, and how long a tensor's graph is."""

import sys
from collections import deque
from typing import Any, NamedTuple

_SAMPLED = 8  # elements of an element
_DEEP = 3
_CHAIN = 4000
_NODES = 2000
_POINTER = 8
_SMALL = 32


class Weight(NamedTuple):
    """Of one element."""

    bytes: int = 0  # without what a graph keeps
    graph: bool = False  # it holds the graph that computed it, and with it that step's activations
    device: bool = False  # some of it lies on a device


NONE = Weight()


def is_tensor(kind: type) -> bool:
    """Whether it is torch's tensor or a class derived from it."""
    torch = sys.modules.get("torch")
    base = getattr(torch, "Tensor", None)
    return base is not None and issubclass(kind, base)


def newest(container: Any, kind: str) -> Weight:
    """Of the element that came last; of the last one of a set or a cache nothing is known."""
    try:
        last = _last(container, kind)
    except (IndexError, RuntimeError, StopIteration):  # another thread of the script has just changed it
        return NONE
    return max((_of(element, 0) for element in last), default=NONE)


def _last(container: Any, kind: str) -> list[Any]:
    if kind == "list":
        return [list.__getitem__(container, -1)]
    if kind == "deque":
        return [deque.__getitem__(container, -1), deque.__getitem__(container, 0)]
    return [next(reversed(dict.values(container)))] if kind == "dict" else []


def _of(value: Any, depth: int) -> Weight:
    kind = type(value)
    if is_tensor(kind):
        return _of_tensor(value)
    if issubclass(kind, (bytes, bytearray, str)):
        return Weight(sys.getsizeof(value))
    if depth < _DEEP and issubclass(kind, (list, tuple, dict)):
        return _of_several(value, depth)
    nbytes = getattr(value, "nbytes", 0) if kind.__module__.partition(".")[0] == "numpy" else 0
    if nbytes:
        return Weight(int(nbytes) + _SMALL)
    if depth < _DEEP and kind.__module__ != "builtins":
        try:
            return _of_several(object.__getattribute__(value, "__dict__"), depth)
        except (AttributeError, TypeError):
            pass
    return Weight(_SMALL)


def _of_several(value: Any, depth: int) -> Weight:
    base = dict if isinstance(value, dict) else list if isinstance(value, list) else tuple
    size = base.__len__(value)
    each = dict.values(value) if base is dict else base.__iter__(value)
    some = [_of(element, depth + 1) for element, _ in zip(each, range(_SAMPLED), strict=False)]
    held = sum(one.bytes for one in some) * size // len(some) if some else 0
    return Weight(held + size * _POINTER, any(one.graph for one in some), any(one.device for one in some))


def _of_tensor(value: Any) -> Weight:
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        return Weight(value.numel() * value.element_size() + 500, value.grad_fn is not None, value.device.type != "cpu")


def graph_length(tensor: Any) -> int:
    """How long a tensor's graph is, in nodes, some of them counted twice, to a bound; 0 where it has none.

    Its two outermost chains, which a sum that goes on (`total = total + loss`) makes longer with each step, and the
    number of its nodes, which is soon at its bound but sees all others.
    """
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        node = tensor.grad_fn
    return _chain(node, 0) + _chain(node, -1) + _nodes(node) if node is not None else 0


def _chain(node: Any, which: int) -> int:
    length = 0
    while node is not None and length < _CHAIN:
        length += 1
        following = node.next_functions
        node = following[which][0] if following else None
    return length


def _nodes(node: Any) -> int:
    seen = {node}
    waiting = [node]
    while waiting and len(seen) < _NODES:
        new = {following for following, _ in waiting.pop().next_functions if following is not None} - seen
        seen |= new
        waiting.extend(new)
    return min(len(seen), _NODES)
