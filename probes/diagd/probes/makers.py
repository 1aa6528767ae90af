"""Which operation made the first value that is not finite: those whose inputs were kept are computed once more.

A ReLU or a sum hands on what it is given; a logarithm, a quotient or a mean over nothing makes such a value of finite
numbers.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from diagd.probes.nodes import leaf, operation

STEPS = 400  # nodes that are walked back over
_INPUTS = ("self", "other", "mat1", "input", "exponent")
_HAND_ON = frozenset({
    "Relu", "Tanh", "Sigmoid", "Threshold", "Hardtanh", "LeakyRelu", "Elu", "Gelu", "Silu", "Softplus", "View", "Clone",
    "UnsafeView", "T", "Transpose", "Permute", "Slice", "Select", "Cat", "Stack", "Expand", "Squeeze", "Unsqueeze",
    "Index", "Gather", "Clamp", "ClampMin", "ClampMax", "NativeDropout", "MaxPool2DWithIndices", "Neg", "Abs",
    "Where", "MaskedFill", "Maximum", "Minimum", "Max", "Min", "IndexSelect", "IndexPut", "Unfold", "Split", "Reshape",
})  # fmt: skip
# Of finite numbers these make such a value only at the end of the dtype's range, which what runs away shows before.
_RARELY = frozenset({"Add", "Sub", "Sum", "Mean", "Mul", "Mm", "Bmm", "Addmm", "Convolution", "ToCopy"})

_SECOND = frozenset({"other", "exponent"})
_BINARY = _SECOND | {"self"}
_WITHOUT_SELF = frozenset({"Div", "Mean", "NllLoss"})
# What is not finite for some finite numbers, and keeps its result alone. Others hand on what they are given, as does a
# softmax: NaN, or a row that is masked throughout.
_MAKES = frozenset({"Sqrt", "Rsqrt", "Reciprocal", "Exp", "Exp2", "Expm1", "Tan", "Logsumexp", "LinalgVectorNorm"})

Named = dict[str, Any]  # what a node has kept, by name


class Made(NamedTuple):
    """The operation's node, and in words what it computed."""

    node: Any
    why: str


def hands_on(node: Any) -> bool:
    """Whether the operation can only hand on such a value, not make one of finite numbers."""
    return operation(node) in _HAND_ON


def seldom_makes(node: Any) -> bool:
    """The same, or of such numbers only as lie at the end of the dtype's range."""
    return operation(node) in _HAND_ON | _RARELY


def is_constant(node: Any, name: str) -> bool:
    """Whether what it has kept by this name came in there from outside of the graph, as targets and weights do."""
    place = 0 if name == "self" else 1 if name in _SECOND or name == "target" else None
    following = node.next_functions
    return place is not None and (place >= len(following) or following[place][0] is None)


def may_make(node: Any) -> bool:
    """Whether the operation makes such values of some finite numbers."""
    return operation(node) in _MAKES


def maker(torch: Any, bad: Any, kept: dict[int, Named]) -> Made | None:
    """The operation, at this node or before it, that made such a value of finite ones; None where none is found.

    Args:
        torch: The module.
        bad: The node that was given, or has made, the first such value that was kept.
        kept: By a node's id, what it has kept.
    """
    found = [(node._sequence_nr(), Made(node, why)) for node, why in _reached(torch, bad, kept) if why]
    return min(found, key=lambda entry: entry[0])[1] if found else None


def suspect(torch: Any, bad: Any, kept: dict[int, Named]) -> Any:
    """The one operation from which it can have come, where none of those that can be computed again has made it.

    Args:
        torch: The module.
        bad: As above.
        kept: As above.
    """
    able = [node for node, _ in _reached(torch, bad, kept) if _is_suspect(torch, node, kept.get(id(node), {}))]
    return able[0] if len(able) == 1 else None


def _is_suspect(torch: Any, node: Any, named: Named) -> bool:
    name = operation(node)
    made = [held for kept, held in named.items() if kept.startswith("result") and held.is_floating_point()]
    harmless = name in _HAND_ON | _RARELY or name in _COMPUTE or leaf(node) is not None
    return not harmless and not (made and all(finite(torch, held) for held in made))


def _reached(torch: Any, bad: Any, kept: dict[int, Named]) -> Iterator[tuple[Any, str]]:
    """The nodes from this one back to where values are known to be finite; with what made one of finite ones there."""
    pending, seen = [bad], {bad}
    while pending and len(seen) < STEPS:
        node = pending.pop()
        named = kept.get(id(node), {})
        why = _again(torch, node, named)
        yield node, why
        if not why and (node is bad or not _is_finite_there(torch, node, named)):
            following = {after for after, _ in node.next_functions if after is not None} - seen
            seen |= following
            pending += following


def _is_finite_there(torch: Any, node: Any, named: Named) -> bool:
    """Whether it has kept what it has made, or all that it was given, and that is finite: nothing came through it.

    A product with a constant keeps the constant alone, on whichever side it is, which says nothing of the other factor.
    """
    made = [held for name, held in named.items() if name.startswith("result") and held.is_floating_point()]
    if made:
        return all(finite(torch, held) for held in made)
    given = {name: held for name, held in named.items() if name in _INPUTS and held.is_floating_point()}
    through = [place for place, (before, _) in enumerate(node.next_functions) if not _is_parameter(before)]
    if given.keys() <= _BINARY:
        known = all("self" in given if place == 0 else bool(_SECOND & given.keys()) for place in through)
    else:
        known = len(given) >= len(through)
    return bool(given) and known and all(finite(torch, held) for held in given.values())


def _is_parameter(node: Any) -> bool:
    """Whether a parameter comes in here, as it is or turned round: those are known to be finite."""
    while node is not None and operation(node) == "T":
        node = node.next_functions[0][0]
    return node is None or leaf(node) is not None


def finite(torch: Any, tensor: Any) -> bool:
    """Whether all of it is; of what lies on a device that is not asked."""
    return tensor.device.type != "cpu" or bool(torch.isfinite(tensor.detach()).all())


def _again(torch: Any, node: Any, named: Named) -> str:
    """In words what was computed, where computing it again gives such a value of finite ones."""
    name = operation(node)
    compute = _COMPUTE.get(name)
    held = {name: tensor.detach() for name, tensor in named.items()}
    given = [tensor for name, tensor in held.items() if name in _INPUTS]
    if compute is None or not ("self" in held or name in _WITHOUT_SELF):
        return ""  # as where a checkpoint has not kept it
    if any(tensor.device.type != "cpu" for tensor in held.values()) or not all(finite(torch, one) for one in given):
        return ""
    value, words = compute(torch, node, held)
    return words if value is not None and not finite(torch, value) else ""


_Computed = tuple[Any, str]


def _logarithm(name: str) -> Callable[[Any, Any, Named], _Computed]:
    def compute(torch: Any, _: Any, held: Named) -> _Computed:
        below = bool((held["self"] < 0).any())
        return getattr(torch, name)(held["self"]), f"a logarithm of {'a number below 0' if below else '0'}"

    return compute


def _outside(name: str, words: str) -> Callable[[Any, Any, Named], _Computed]:
    return lambda torch, _, held: (getattr(torch, name)(held["self"]), words)


def _quotient(torch: Any, _: Any, held: Named) -> _Computed:
    other = held.get("other")
    if other is None:
        return None, ""
    upper = held.get("self", torch.ones_like(other))
    return upper / other, "a division by 0"


def _power(torch: Any, node: Any, held: Named) -> _Computed:
    exponent = held.get("exponent", getattr(node, "_saved_exponent", None))
    base = held.get("self")
    if base is None or exponent is None:
        return None, ""
    return torch.pow(base, exponent), "a power of 0 or of a number below it, or one too large"


def _product(_: Any, __: Any, held: Named) -> _Computed:
    first, second = held.get("self"), held.get("other")
    return (None if first is None or second is None else first * second), "a product too large for its dtype"


def _mean(torch: Any, node: Any, _: Named) -> _Computed:
    empty = getattr(node, "_saved_self_sym_numel", 1) == 0
    return torch.tensor(float("nan") if empty else 0.0), "a mean over no elements"


def _labelled(torch: Any, node: Any, held: Named) -> _Computed:
    """A mean (reduction 1) over the labels that are not to be ignored."""
    weight = held.get("total_weight")
    none = weight is not None and getattr(node, "_saved_reduction", 0) == 1 and not bool(weight.any())
    return torch.tensor(float("nan") if none else 0.0), "a mean over no labels: all of the batch are masked or ignored"


def _deviation(torch: Any, node: Any, held: Named) -> _Computed:
    name = operation(node).lower()
    found = getattr(torch, name)(held["self"], node._saved_dim, correction=node._saved_correction or 0)
    return found, f"{name} over a single element"


_COMPUTE: dict[str, Callable[[Any, Any, Named], _Computed]] = {
    **{name: _logarithm(name.lower()) for name in ("Log", "Log2", "Log10")},
    **{name: _outside(name.lower(), f"{name.lower()} of a number outside its domain")
       for name in ("Acos", "Asin", "Atanh", "Acosh", "Erfinv")},
    "Log1P": _outside("log1p", "log1p of -1 or less"),
    "Div": _quotient, "Mul": _product, "Pow": _power, "Mean": _mean, "NllLoss": _labelled, "Std": _deviation,
    "Var": _deviation,
}  # fmt: skip
