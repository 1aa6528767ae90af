"""What `nan_to_num` keeps from a loss: the part that is not finite, of what it is given behind the model's last layer.

In front of that layer it has uses of its own, as where attention has nothing to attend to. Of the loss itself nothing
tells any more: it is finite, and its gradients are zero where it was not.

The series `loss/filtered` holds the part, of a scalar 0 or 1.
"""

import sys
from collections.abc import Iterator
from typing import Any

from diagd.probes import later, nodes
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

FIRST, TIMES = 3, 4  # steps: each of the first, then ever more seldom, and each that is looked at once there is one
NODES = 64
ELEMENTS = 1 << 20
_FILTER = "NanToNum"


class _Looks:
    """This process's."""

    def __init__(self) -> None:
        self.next = 0  # step
        self.box: Any = None  # a forked child begins anew


LOOKS = _Looks()


def look(root: Any, step: int) -> None:
    """Before a backward pass."""
    if LOOKS.box is not STATE.box:
        LOOKS.box, LOOKS.next = STATE.box, 0
    if step < LOOKS.next or root.grad_fn is None:
        return
    held = [tensor for node in _behind_layers(root.grad_fn) if (tensor := _given(node)) is not None]
    LOOKS.next = step + 1 if step < FIRST or held else TIMES * step
    if held:
        torch = sys.modules["torch"]
        with later.unseen(torch):
            parts = [(~torch.isfinite(tensor.detach())).double().mean() for tensor in held]
            later.read(
                torch.stack(parts).amax().reshape(1), lambda values: SIGNALS.record("loss/filtered", values[0], step)
            )


def _behind_layers(loss: Any) -> Iterator[Any]:
    """The filters between the loss and the nearest operations that have parameters."""
    pending, seen = [loss], {loss}
    while pending and len(seen) < NODES:
        node = pending.pop(0)
        if nodes.operation(node) == _FILTER:
            yield node
        after = [one for one, _ in node.next_functions if one is not None]
        if any(_is_parameter(one) for one in after):
            continue
        new = [one for one in after if one not in seen]
        seen.update(new)
        pending += new


def _is_parameter(node: Any) -> bool:
    """Whether a parameter comes in here, as it is or turned round."""
    while nodes.operation(node) in ("T", "Transpose", "Permute"):
        node = node.next_functions[0][0]
    return node is not None and nodes.leaf(node) is not None


def _given(node: Any) -> Any:
    raw = getattr(node, "_raw_saved_self", None)
    held = later.plain(raw.data) if raw is not None and raw.unpack_hook is None and raw.data is not None else None
    return held if held is not None and held.numel() <= ELEMENTS else None
