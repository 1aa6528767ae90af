"""Predictions that are broadcast against targets of another shape where the loss is made, found in its first graphs.

(N, 1) less (N,) is (N, N): no error, and the best that can then be learned is the targets' mean. The graph tells the
shape of what is trained before and after. A difference of two things that are both trained (scores in pairs) is meant.

The fact `loss/broadcast` holds both shapes, as "64,1 64,64".
"""

from typing import Any

from diagd.probes import nodes
from diagd.probes.signals import SIGNALS

STEPS = 3  # the first ones: shapes do not change after that
NODES = 24  # from the loss on
_DIFFERENCE = ("SubBackward0", "ExpandBackward0")  # losses of torch's own expand their inputs


def look(root: Any, step: int) -> None:
    """Before a backward pass."""
    if step <= STEPS and root.grad_fn is not None and (shapes := broadcast(root.grad_fn)) is not None:
        given, made = shapes
        SIGNALS.fact("loss/broadcast", f"{','.join(map(str, given))} {','.join(map(str, made))}", step)


def broadcast(loss: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shape of what is trained, and that of its difference to the targets; None where they are as they should."""
    pending, seen = [loss], 0
    while pending and seen < NODES:
        node = pending.pop(0)
        seen += 1
        before = [after for after, _ in node.next_functions if after is not None]
        if nodes.kind(node) in _DIFFERENCE and len(before) == 1:
            given, made = _shape(before[0]), _shape(node)
            if _is_square(made) and given in ((made[0], 1), (made[0],)):
                return given, made
        pending += before
    return None


def _is_square(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[0] == shape[1] > 1


def _shape(node: Any) -> tuple[int, ...]:
    """Of what the node has made; empty where this torch does not tell."""
    made = getattr(node, "_input_metadata", None)
    return tuple(made[0].shape) if made else ()
