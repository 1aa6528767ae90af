"""How much there is to learn of a classifier's targets: the entropy of how often each class is wanted.

A loss that stays there comes from a model that knows how often there is each class, and nothing of its inputs. Only of
a cross entropy that is the whole loss; its graph keeps the targets. They are counted in some steps, each time more.

    loss/target_entropy  nats, of all targets counted so far, with Miller and Madow's correction for few samples
"""

import math
import sys
from typing import Any

from diagd.probes import later, nodes
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

CLASSES = 4096  # above, more targets than are counted here would say too little
ENOUGH = 1 << 16  # targets
STEPS = frozenset(1 << power for power in range(3, 12))
_WHOLE = ("NllLossBackward0", "NllLoss2DBackward0")


class _Targets:
    """This process's."""

    def __init__(self) -> None:
        self.counts: list[float] = []
        self.box: Any = None  # a forked child begins anew


TARGETS = _Targets()


def look(root: Any, step: int) -> None:
    """Before a backward pass."""
    if step not in STEPS or nodes.kind(root.grad_fn) not in _WHOLE:
        return
    found = _of(root.grad_fn)
    if found is None:
        return
    target, classes, ignored = found
    torch = sys.modules["torch"]
    with later.unseen(torch):
        wanted = target.reshape(-1)[:ENOUGH]
        known = (wanted >= 0) & (wanted < classes) & (wanted != ignored)
        counts = torch.zeros(classes, device=target.device)
        counts.scatter_add_(0, wanted.clamp(0, classes - 1), known.to(counts.dtype))
        later.read(counts, lambda values: _add(values, step))


def _of(node: Any) -> tuple[Any, int, int] | None:
    """The targets of a cross entropy, how many classes there are, and which is left out; None unless it is a mean."""
    raw, before = getattr(node, "_raw_saved_target", None), node.next_functions[0][0]
    made = getattr(before, "_input_metadata", None)
    if raw is None or raw.unpack_hook is not None or not made or not _is_mean(node):
        return None
    target, shape = raw.data, tuple(made[0].shape)
    classes = shape[1] if len(shape) > 1 else 0
    if target is None or not target.numel() or not 1 < classes <= CLASSES:
        return None
    ignored = node._saved_ignore_index
    return target, classes, ignored if ignored < classes else -1  # a negative one is told without its sign


def _is_mean(node: Any) -> bool:
    """Of all samples, and all classes alike."""
    return node._saved_weight is None and node._saved_reduction == 1


def _add(values: list[float], step: int) -> None:
    if TARGETS.box is not STATE.box or len(TARGETS.counts) != len(values):
        TARGETS.box, TARGETS.counts = STATE.box, [0.0] * len(values)
    TARGETS.counts = [one + more for one, more in zip(TARGETS.counts, values, strict=True)]
    total = sum(TARGETS.counts)
    if total:
        SIGNALS.record("loss/target_entropy", entropy(TARGETS.counts), step)


def entropy(counts: list[float]) -> float:
    """In nats, of the classes that were counted.

    Source: G. Miller, Note on the bias of information estimates, 1955: + (classes seen - 1) / (2 samples).
    """
    seen = [count for count in counts if count]
    total = sum(seen)
    return -sum(n / total * math.log(n / total) for n in seen) + (len(seen) - 1) / (2 * total)
