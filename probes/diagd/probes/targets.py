"""What a loss is at that knows nothing of the inputs, from its targets: of classes how often there is each, of numbers
how far they lie from their mean.

A loss that stays there comes from a model that has learned no more than that. Only of a loss that is one mean over all
samples; its graph keeps the targets. They are counted in some steps, each time more.

    loss/target_entropy   nats, of all targets counted so far, with Miller and Madow's correction for few samples; of
                          several yes-or-no answers, the mean over them
    loss/target_variance  of targets that are numbers; of several, the mean over them
"""

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from diagd.probes import later, nodes
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

CLASSES = 4096  # above, more targets than are counted here would say too little
ENOUGH = 1 << 16  # targets
STEPS = frozenset(1 << power for power in range(3, 12))
OFTEN = 8  # steps, until there are enough
_MEAN = 1  # of torch.nn._reduction


class _Targets:
    """This process's."""

    def __init__(self) -> None:
        self.kind = ""
        self.sums: list[float] = []
        self.rows = 0.0
        self.box: Any = None  # a forked child begins anew


TARGETS = _Targets()


class _Loss(NamedTuple):
    """How the targets of a loss are summed up, and what their sums say: a signal and its value, None of no use."""

    sums: Callable[[Any], Any]  # of its node: a tensor, the number of targets first; None where it is no such loss
    said: Callable[[list[float]], float | None]
    signal: str


def look(root: Any, step: int) -> None:
    """Before a backward pass."""
    kind = nodes.kind(root.grad_fn)
    loss = _LOSSES.get(kind)
    if loss is None or not (step in STEPS or (step % OFTEN == 0 and TARGETS.rows < ENOUGH)):
        return
    torch = sys.modules["torch"]
    with later.unseen(torch):
        sums = loss.sums(root.grad_fn)
        if sums is not None:
            later.read(sums, lambda values: _add(kind, values, step))


def _add(kind: str, values: list[float], step: int) -> None:
    if (TARGETS.box, TARGETS.kind, len(TARGETS.sums)) != (STATE.box, kind, len(values)):
        TARGETS.box, TARGETS.kind, TARGETS.sums = STATE.box, kind, [0.0] * len(values)
    TARGETS.sums = [one + more for one, more in zip(TARGETS.sums, values, strict=True)]
    TARGETS.rows = TARGETS.sums[0]
    loss = _LOSSES[kind]
    said = loss.said(TARGETS.sums) if TARGETS.rows else None
    if said is not None:
        SIGNALS.record(loss.signal, said, step)


def _kept(node: Any) -> Any:
    """The targets of a loss that is a mean of all samples; None where there is none, or a hook has put them away."""
    raw = getattr(node, "_raw_saved_target", None)
    if raw is None or raw.unpack_hook is not None or node._saved_reduction != _MEAN:
        return None
    return raw.data if raw.data is not None and raw.data.numel() else None


def _classes(node: Any) -> Any:
    """Targets, then how often there is each class; None unless all classes weigh the same."""
    torch = sys.modules["torch"]
    target, made = _kept(node), getattr(node.next_functions[0][0], "_input_metadata", None)
    if target is None or not made or node._saved_weight is not None:
        return None
    shape, ignored = tuple(made[0].shape), node._saved_ignore_index  # a negative one is told without its sign
    classes = shape[1] if len(shape) > 1 else 0
    if not 1 < classes <= CLASSES:
        return None
    wanted = target.reshape(-1)[:ENOUGH]
    known = (wanted >= 0) & (wanted < classes) & (wanted != (ignored if ignored < classes else -1))
    counts = torch.zeros(classes, device=target.device)
    counts.scatter_add_(0, wanted.clamp(0, classes - 1), known.to(counts.dtype))
    return torch.cat([counts.sum().reshape(1), counts])


def _answers(node: Any) -> Any:
    """Rows, how far they are from being all 0 or 1, and how often each answer is 1."""
    torch = sys.modules["torch"]
    target = _kept(node)
    weighed = node._saved_weight is not None or getattr(node, "_saved_pos_weight", None) is not None
    table = _table(target) if target is not None and not weighed else None
    if table is None:
        return None
    soft = (table * (1 - table)).abs().sum().reshape(1)
    return torch.cat([soft.new_full((1,), len(table)), soft, table.sum(0)])


def _numbers(node: Any) -> Any:
    """Rows, then the sums of each number, and of its squares."""
    torch = sys.modules["torch"]
    target = _kept(node)
    computed = node.next_functions[1][0] is not None  # by what is trained, too: nothing that is given
    table = _table(target) if target is not None and not computed else None
    return None if table is None else torch.cat([table.new_full((1,), len(table)), table.sum(0), table.square().sum(0)])


def _table(target: Any) -> Any:
    """As float64 [samples, what is wanted of each]; of images and sequences, the places count as samples."""
    torch = sys.modules["torch"]
    held = later.plain(target)
    if held is None or held.dim() == 0 or (held.dim() > 1 and held.shape[1] > CLASSES):
        return None
    held = held.detach()[: max(ENOUGH * len(held) // held.numel(), 1)]
    table = held.movedim(1, -1).reshape(-1, held.shape[1]) if held.dim() > 1 else held.reshape(-1, 1)
    return table.to(torch.float64)


def _entropy_of_classes(sums: list[float]) -> float:
    return entropy(sums[1:])


def _entropy_of_answers(sums: list[float]) -> float | None:
    rows, soft, *ones = sums
    if soft > 0:
        return None  # such targets have a spread of their own, which nothing can be learned of
    return sum(entropy([one, rows - one]) for one in ones) / len(ones)


def _variance(sums: list[float]) -> float | None:
    rows, values = sums[0], (len(sums) - 1) // 2
    if rows < 2:
        return None
    spread = (squares - one * one / rows for one, squares in zip(sums[1 : values + 1], sums[values + 1 :], strict=True))
    return sum(max(one, 0.0) for one in spread) / values / (rows - 1)


def entropy(counts: list[float]) -> float:
    """In nats, of the classes that were counted.

    Source: G. Miller, Note on the bias of information estimates, 1955: + (classes seen - 1) / (2 samples).
    """
    seen = [count for count in counts if count]
    total = sum(seen)
    return -sum(n / total * math.log(n / total) for n in seen) + (len(seen) - 1) / (2 * total)


_ENTROPY = "loss/target_entropy"
_LOSSES = {
    "NllLossBackward0": _Loss(_classes, _entropy_of_classes, _ENTROPY),
    "NllLoss2DBackward0": _Loss(_classes, _entropy_of_classes, _ENTROPY),
    "BinaryCrossEntropyWithLogitsBackward0": _Loss(_answers, _entropy_of_answers, _ENTROPY),
    "BinaryCrossEntropyBackward0": _Loss(_answers, _entropy_of_answers, _ENTROPY),
    "MseLossBackward0": _Loss(_numbers, _variance, "loss/target_variance"),
}
