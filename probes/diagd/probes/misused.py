"""Losses that are given something else than they are made for, found in the loss's graph: none of it is an error.

`cross_entropy` takes a soft-max by itself and `binary_cross_entropy_with_logits` a sigmoid: of what has been through
one already nothing is as sure as it should be, so that the loss has a floor that it cannot go below. `nll_loss` takes
logarithms of probabilities: of plain scores it falls without an end. A soft-max over the samples of a batch makes them
compete, not the classes.

The fact `loss/misused` holds what it is and, where it is of use, the number of classes: "softmax twice 10".
"""

import sys
from typing import Any

from diagd.probes import later, nodes
from diagd.probes.looks import Looks
from diagd.probes.signals import SIGNALS

NODES = 64  # from the loss on: behind it is the model
ABOVE_ZERO = 0.01  # a logarithm of a probability that was computed in half precision may be a little above 0
ELEMENTS = 1 << 20
_NLL = ("NllLoss", "NllLoss2D")
# Operations that move values to other places, or to another type, and leave them what they are.
_LEAVE = frozenset({
    "View", "UnsafeView", "ReshapeAlias", "Alias", "Transpose", "T", "Permute", "Select", "Slice", "Squeeze",
    "Unsqueeze", "Index", "IndexSelect", "Clone", "ToCopy", "Narrow", "Split", "Unbind", "MaskedSelect",
    "_DDPSink", "Cat",
})  # fmt: skip
_TWICE = {
    ("LogSoftmax", "Softmax"): "softmax twice", ("LogSoftmax", "Sigmoid"): "sigmoid before softmax",
    ("BinaryCrossEntropyWithLogits", "Sigmoid"): "sigmoid twice",
}  # fmt: skip


LOOKS = Looks()


def look(root: Any, step: int) -> None:
    """Before a backward pass."""
    if not LOOKS.due(step) or root.grad_fn is None:
        return
    LOOKS.looked(step)
    for node in nodes.nearest(root.grad_fn, NODES):
        if said := _twice(node) or _over_samples(node):
            SIGNALS.fact("loss/misused", said, step)
            return
        if nodes.operation(node) in _NLL and nodes.operation(_given(node)) != "LogSoftmax":
            _look_at_scores(node, step)


def _given(node: Any) -> Any:
    """What made the first thing that a node is given, whatever has moved it since."""
    node = node.next_functions[0][0]
    while node is not None and nodes.operation(node) in _LEAVE:
        node = node.next_functions[0][0]
    return node


def _twice(node: Any) -> str:
    before = _given(node) if node.next_functions else None
    said = _TWICE.get((nodes.operation(node), nodes.operation(before)), "")
    shape = _shape(node)
    return f"{said} {shape[_dim(node, len(shape))]}" if said == "softmax twice" and shape else said


def _over_samples(node: Any) -> str:
    """Whether its soft-max was taken over the samples, of what is given class by class."""
    before = node.next_functions[0][0] if nodes.operation(node) in _NLL else None
    if nodes.operation(before) != "LogSoftmax" or len(shape := _shape(before)) != 2 or shape[0] < 2:
        return ""
    return "softmax over samples" if _dim(before, 2) == 0 else ""


def _dim(node: Any, dims: int) -> int:
    """The dimension of a soft-max; a negative one is told without its sign."""
    dim = getattr(node, "_saved_dim", 1)
    return dim if 0 <= dim < dims else dims - 1


def _shape(node: Any) -> tuple[int, ...]:
    made = getattr(node, "_input_metadata", None)
    return tuple(made[0].shape) if made else ()


def _look_at_scores(node: Any, step: int) -> None:
    """Whether what the loss takes for logarithms of probabilities can be none."""
    raw = getattr(node, "_raw_saved_self", None)
    held = later.plain(raw.data) if raw is not None and raw.unpack_hook is None and raw.data is not None else None
    if held is None or not 0 < held.numel() <= ELEMENTS:
        return

    def judge(values: list[float]) -> None:
        if values[0] > ABOVE_ZERO:
            SIGNALS.fact("loss/misused", "scores", step)

    with later.unseen(sys.modules["torch"]):
        later.read(held.detach().max().double().reshape(1), judge)
