"""What optimizers step with besides the gradients, and how often ranks have met when they have made so many steps.

The learning rate is a scalar of its own (rates.py). The rest of each parameter group is a fact, told again where it has
changed. A group's numbers go on from optimizer to optimizer in the order of their first steps, as those of the rates.
"""

import weakref
from typing import Any

from diagd.probes import groups, turns
from diagd.probes.box.layout import Live
from diagd.probes.budget import BUDGET
from diagd.probes.guard import Probe
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

EVERY = 16  # steps
MAX_GROUPS = 16  # of all optimizers
EARLY = 16  # steps after each of which it is told how often the ranks have met; then after every CLOCK_EVERY-th
CLOCK_EVERY = 4
CLOCK = "step/collectives"  # issued so far by this rank on groups of all ranks, in which they all stand side by side
# How a step is computed, and what the rates tell.
_NOT_TOLD = frozenset({"params", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable", "param_names"})
_PLAIN = (bool, int, float, str)
_STEP = int(Live.STEP)

_joined: list[Probe] = []


class _Settings:
    """Of all optimizers of this process."""

    def __init__(self) -> None:
        self.box: Any = None
        self.first: dict[int, tuple[weakref.ref[Any], int]] = {}  # by optimizer: number of its first group
        self.groups = 0
        self.last: dict[int, str] = {}
        self.step = -1


SETTINGS = _Settings()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer is there."""
    _joined.append(probe)
    turns.join(probe, _following, before=_before, after=_after)


def remove() -> None:
    """Take the hooks away."""
    while _joined:
        turns.leave(_joined.pop())


def _following(step: int) -> int:
    return step + 1 if step < EARLY else turns.sampled(step, CLOCK_EVERY)


def _before(optimizer: Any) -> None:
    if not STATE.recording:
        return
    if SETTINGS.box is not STATE.box:
        SETTINGS.__init__()  # type: ignore[misc]  # a forked child is another rank
        SETTINGS.box = STATE.box
    step = max(STATE.live[_STEP], 0) + 1
    known = SETTINGS.first.get(id(optimizer))
    new = known is None or known[0]() is not optimizer
    if new or step % EVERY == 0:
        _tell(optimizer, _number(optimizer) if new or known is None else known[1], step)


def _number(optimizer: Any) -> int:
    number = SETTINGS.groups
    SETTINGS.groups += len(optimizer.param_groups)
    SETTINGS.first[id(optimizer)] = weakref.ref(optimizer), number
    return number


def _tell(optimizer: Any, first: int, step: int) -> None:
    for number, group in enumerate(optimizer.param_groups[: max(MAX_GROUPS - first, 0)], first):
        text = settings_text(type(optimizer).__name__, group)
        if text != SETTINGS.last.get(number):
            SETTINGS.last[number] = text
            SIGNALS.fact(f"optimizer/{number}", text, step)


def settings_text(kind: str, group: dict[str, Any]) -> str:
    """The optimizer's class and its plain settings, by name: "AdamW betas=(0.9, 0.999) eps=1e-08"."""
    said = [f"{name}={value!r}" for name, value in sorted(group.items()) if name not in _NOT_TOLD and _is_plain(value)]
    return " ".join([kind, *(text.replace(" ", "") for text in said)])


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) in (tuple, list) and all(type(part) in _PLAIN for part in value))


def _after(optimizer: Any) -> None:
    if not STATE.recording or turns.counted() == SETTINGS.step:
        return
    step = SETTINGS.step = turns.counted()
    if step <= EARLY or step % (CLOCK_EVERY * BUDGET.stride) == 0:
        met = meetings()
        if met >= 0:
            SIGNALS.record(CLOCK, float(met), step)


def meetings() -> int:
    """How many collectives this rank has issued on groups of all ranks; -1 where no backend tells."""
    living = list(groups.TABLE.values())
    world = max((len(group.ranks) for group in living), default=0)
    counts = [groups.issued(group) for group in living if len(group.ranks) == world and group.counts]
    return sum(count for count in counts if count >= 0) if world > 1 and counts else -1
