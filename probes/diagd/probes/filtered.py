"""What `nan_to_num` keeps from a loss: the part that is not finite, of what it is given behind the model's last layer.

In front of that layer it has uses of its own, as where attention has nothing to attend to. Of the loss itself nothing
tells any more: it is finite, and its gradients are zero where it was not.

The series `loss/filtered` holds the part, of a scalar 0 or 1.
"""

import sys
from typing import Any

from diagd.probes import later, nodes
from diagd.probes.looks import Looks
from diagd.probes.signals import SIGNALS

NODES = 64
ELEMENTS = 1 << 20
_FILTER = "NanToNum"


LOOKS = Looks()


def look(root: Any, step: int) -> None:
    """Before a backward pass."""
    if not LOOKS.due(step) or root.grad_fn is None:
        return
    filters = [node for node in nodes.nearest(root.grad_fn, NODES, _to_layers) if nodes.operation(node) == _FILTER]
    held = [tensor for node in filters if (tensor := _given(node)) is not None]
    LOOKS.looked(step, follow=bool(held))
    if held:
        torch = sys.modules["torch"]
        with later.unseen(torch):
            parts = [(~torch.isfinite(tensor.detach())).double().mean() for tensor in held]
            later.read(
                torch.stack(parts).amax().reshape(1), lambda values: SIGNALS.record("loss/filtered", values[0], step)
            )


def _to_layers(node: Any) -> list[Any]:
    """What is behind a node; nothing where it is an operation that has parameters."""
    after = nodes.behind(node)
    return [] if any(_is_parameter(one) for one in after) else after


def _is_parameter(node: Any) -> bool:
    """Whether a parameter comes in here, as it is or turned round."""
    while nodes.operation(node) in ("T", "Transpose", "Permute"):
        node = node.next_functions[0][0]
    return node is not None and nodes.leaf(node) is not None


def _given(node: Any) -> Any:
    raw = getattr(node, "_raw_saved_self", None)
    held = later.plain(raw.data) if raw is not None and raw.unpack_hook is None and raw.data is not None else None
    return held if held is not None and held.numel() <= ELEMENTS else None
