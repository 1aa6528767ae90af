"""Whether updates reach the weights that are kept in half precision: a few elements of each, before and after a step.

Seen are elements whose gradient is not zero at each look, or at three of them as in rows of an embedding that come up
now and then, and which stand where they stood at the first of these looks.
Signals, each at some steps only:

    roundoff/lr                 the largest learning rate of such parameters
    roundoff/parameters         so many of these are looked at
    roundoff/elements           so many of their elements have a gradient
    roundoff/lucky              so many moved though their update was far below half the distance to the next number:
                                the optimizer rounds stochastically, or adds up what is lost
    roundoff/still/<parameter>  share of the elements with gradients that stand still, over LEAST_AGE steps or more
    roundoff/lost/<parameter>   share of those with a gradient in this step whose update was rounded away
    roundoff/size/<parameter>   the mean of their updates, in halves of the distance to the next number
    roundoff/flushed/<parameter>  share of those with a gradient whose second moment is exactly zero

and the facts `roundoff/dtype`, `roundoff/since` (the step of the first look) and `roundoff/adapters`, the names of such
parameters that are a small trained part of a frozen model. Only parameters most of which stand still, or have no second
moment, have series of their own.
"""

import sys
import time
import weakref
from typing import Any

from diagd.probes import dtypes, later, naming, roundings, turns
from diagd.probes.box.layout import Live
from diagd.probes.budget import BUDGET
from diagd.probes.guard import Probe
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

# Steps since an optimizer's first that are looked at in any case, as most faults are there from the start.
ALWAYS = (0, 8, 24, 32, 48, 64, 96, 128)
EVERY = 16  # steps, after these and as the budget allows
LEAST_AGE = 24  # steps that an element must have stood still
RENEW = 256  # steps after which the comparison begins anew
MANY = 512  # parameters of one optimizer
MANY_OPTIMIZERS = 64
SHOWN = 0.15  # share from which a parameter has series of its own
MIN_FELT = 8  # elements
OFTEN = 3  # looks at which an element had a gradient

_STEP = int(Live.STEP)
_joined: list[Probe] = []
_watches: dict[int, "_Watch"] = {}  # by the optimizer's id


class _Watch:
    """What is known of one optimizer's parameters in half precision."""

    def __init__(self, optimizer: Any, step: int) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.began = step  # with which it was met
        self.step = 0  # of the last look
        self.sure = step  # the next look in any case
        self.next = step  # the next one as the budget allows
        self.cost_ns = 0  # of a look, as a running median
        self.looks = 0
        self.took_ns = 0  # this one, so far
        self.dtypes: list[Any] = []
        self.rows: list[roundings.Row] = []
        self.sample: roundings.Sample | None = None  # of this step, between the two hooks
        self.first: Any = None  # the elements at the first look
        self.felt: Any = None  # at how many looks from then on each has had a gradient
        self.compared = 0  # looks since the first of them
        self.since = 0
        self.shown: set[str] = set()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer is there."""
    STATE.listeners.append(_at_switch)
    _joined.append(probe)
    turns.join(probe, _following, before=_before, after=_after)


def remove() -> None:
    """Take the hooks away."""
    while _joined:
        turns.leave(_joined.pop())


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        _watches.clear()  # a forked child begins anew
        naming.forget()


def _following(step: int) -> int:
    looks = [min(watch.sure, watch.next) for watch in _watches.values() if watch.optimizer() is not None]
    return max(min(looks, default=turns.NEVER), step + 1)


def _watch(optimizer: Any, step: int) -> _Watch | None:
    found = _watches.get(id(optimizer))
    if found is not None and found.optimizer() is optimizer:
        return found
    if len(_watches) >= MANY_OPTIMIZERS:
        return None
    found = _watches[id(optimizer)] = _Watch(optimizer, step)
    return found


def _before(optimizer: Any) -> None:
    live = STATE.live
    if live is None or not STATE.recording:
        return
    step = max(live[_STEP], 0) + 1
    watch = _watch(optimizer, step)
    if watch is None or step == watch.step or not _due(watch, step):
        return
    torch = sys.modules["torch"]
    if not later.possible(torch):
        return
    began = time.thread_time_ns()
    watch.step, watch.next = step, step + max(EVERY, BUDGET.stride)
    with later.unseen(torch):
        _follow(watch, optimizer)
        watch.sample = roundings.before(watch.rows) if watch.rows else None
    watch.took_ns = time.thread_time_ns() - began


def _due(watch: _Watch, step: int) -> bool:
    if step >= watch.sure:
        watch.sure = min((watch.began + n for n in ALWAYS if watch.began + n > step), default=turns.NEVER)
        return True
    if step < watch.next:
        return False
    if not watch.rows:
        return True
    if BUDGET.affords(watch.cost_ns):
        return True
    watch.next += EVERY // 4
    watch.cost_ns -= watch.cost_ns >> 4  # it may have been an unlucky one
    return False


def _follow(watch: _Watch, optimizer: Any) -> None:
    """Tell a change of dtypes; after one, or where parameters were added, look anew for those in half precision."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    now = [parameter.dtype for parameter in parameters]
    if now == watch.dtypes:
        return
    if watch.dtypes and len(now) == len(watch.dtypes):
        pairs = zip(parameters, watch.dtypes, now, strict=True)
        dtypes.changed(optimizer, [(p, old, new) for p, old, new in pairs if old is not new], watch.step)
    watch.dtypes, watch.first = now, None
    watch.rows = roundings.rows(optimizer, MANY)


def _after(optimizer: Any) -> None:
    watch = _watches.get(id(optimizer))
    if watch is None or watch.sample is None:
        return
    began = time.thread_time_ns()
    sample, watch.sample = watch.sample, None
    with later.unseen(sys.modules["torch"]):
        later.arrived()
        seen = roundings.after(optimizer, sample)
        if seen is not None:
            _compare(watch, seen)
    _count(watch, watch.took_ns + time.thread_time_ns() - began)


def _count(watch: _Watch, took: int) -> None:
    """Against the budget, but for the very first look, in which torch loads what it needs for it."""
    watch.looks += 1
    if watch.looks == 1:
        return
    watch.cost_ns += (watch.cost_ns // 8 or took) * (1 if took > watch.cost_ns else -1)
    BUDGET.spent(took)


def _compare(watch: _Watch, seen: roundings.Seen) -> None:
    """With what the same elements were at the first look."""
    step, before = watch.step, seen.sample.before
    if watch.first is None or len(watch.first) != len(before) or step - watch.since >= RENEW:
        watch.first, watch.felt, watch.since, watch.compared = before, seen.felt.int(), step, 1
    else:
        watch.felt, watch.compared = watch.felt + seen.felt, watch.compared + 1
    age, sample = step - watch.since, seen.sample
    sums = roundings.sums(seen, watch.first, watch.felt >= min(watch.compared, OFTEN))
    later.read(sums.flatten(), lambda numbers: _tell(watch, sample, numbers, step, age))


def _tell(watch: _Watch, sample: roundings.Sample, numbers: list[float], step: int, age: int) -> None:
    width = len(sample.rows)
    felt, still, lost, lucky, flushed, now, size = (
        numbers[begin : begin + width] for begin in range(0, len(numbers), width)
    )
    SIGNALS.record("roundoff/lr", max(row.lr() for row in sample.rows), step)
    SIGNALS.record("roundoff/parameters", width, step)
    SIGNALS.record("roundoff/elements", sum(now), step)
    SIGNALS.record("roundoff/lucky", sum(lucky), step)
    old = age >= LEAST_AGE
    told = [
        n for n in range(width)
        if (old and felt[n] >= MIN_FELT and still[n] > SHOWN * felt[n])
        or (now[n] >= MIN_FELT and flushed[n] > SHOWN * now[n])
    ]  # fmt: skip
    if not told and not watch.shown:
        return
    for number, name in _names(watch, sample, told, step - age).items():
        SIGNALS.record(f"roundoff/flushed/{name}", flushed[number] / max(now[number], 1), step)
        if old and felt[number] >= MIN_FELT:
            SIGNALS.record(f"roundoff/still/{name}", still[number] / felt[number], step)
            SIGNALS.record(f"roundoff/lost/{name}", lost[number] / max(now[number], 1), step)
            SIGNALS.record(f"roundoff/size/{name}", size[number] / max(now[number], 1), step)


def _names(watch: _Watch, sample: roundings.Sample, told: list[int], since: int) -> dict[int, str]:
    """Of the parameters to tell of, and of those that were told of before."""
    names = naming.parameters(sample.parameters, watch.optimizer())
    new = [names[number] for number in told if names[number] not in watch.shown]
    if new:
        watch.shown.update(new)
        SIGNALS.fact("roundoff/dtype", str(sample.before.dtype).removeprefix("torch."))
        SIGNALS.fact("roundoff/since", str(since))
        adapters = naming.adapters([sample.parameters[n] for n in told])
        if adapters:
            SIGNALS.fact("roundoff/adapters", ",".join(adapters)[:900])
    return {number: name for number, name in enumerate(names) if name in watch.shown}
