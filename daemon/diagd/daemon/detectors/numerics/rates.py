"""Learning rates that are not what a schedule can mean."""

import re
from collections.abc import Callable, Iterator

import numpy as np

from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.numerics.climbing import climbing
from diagd.daemon.detectors.numerics.groups import first_alone, orphaned
from diagd.daemon.detectors.numerics.odd_rate import Odd, now_of, rates_of
from diagd.daemon.detectors.numerics.too_often import explained
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, Floats, Ints, curve_of, figure
from diagd.daemon.detectors.training.falling import may_fall
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.state.job import JobState

GONE = 1e-4  # of the highest so far: less is no training. Cosines and lines are below it in their last steps only
GONE_FOR = 0.1  # of all steps so far
GONE_LEAST = 20  # steps
LOW, LOW_FOR, LOW_LEAST = 1e-2, 0.6, 60  # so little for most of a run: it was over before it began
SEEN = 60  # samples of the loss that show whether it falls
ZERO_FOR = 20  # steps from the first on; warm-ups begin at zero, and leave it at once
BELOW_ZERO = 2  # rates that were told
AGAIN = 2  # times up again
HIGH_PART, LOW_PART = 0.9, 0.1  # of the peak: up, and down
BEYOND = 0.1  # of the way up again: what a cosine leaves and comes back to at its end is less
ADAPTIVE = frozenset({"Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adamaxw", "Lion", "RMSprop"})
HUGE = 0.1  # for these: each step moves each weight by about so much
RISEN_AFTER = 30  # steps in which the loss has not fallen
UNSTEPPED = 400  # steps without one of the scheduler's
HARDLY, HARDLY_TIMES = (
    100,
    5,
)  # steps, and the scheduler's among them, after which a warm-up by epochs would be on its way
WARMING = 0.1  # of the rate that it is to reach
SELDOM = 0.1  # of the steps


def rates(scene: Scene) -> Iterator[Finding]:
    """The first thing that is odd about the rates; schedules are the same on all ranks."""
    state = scene.state
    found: dict[str, dict[int, Odd]] = {}
    for rank in state.signals.ranks("lr/0"):
        curve = highest(state, rank)
        odd = next((one for rule in _RULES if (one := rule(state, rank, curve)) is not None), None)
        if odd is not None:
            found.setdefault(odd.key, {})[rank] = explained(state, rank, odd)
    for key, by_rank in found.items():
        ranks = tuple(sorted(by_rank))
        odd = by_rank[ranks[0]]
        fact = state.signals.fact(ranks[0], "lr/scheduler")
        told = [seen(odd.text, ranks[0], odd.step)] + (
            [seen(f"scheduler {fact[1]}", ranks[0])] if fact is not None else []
        )
        why = cause(odd.cause or key, odd.why, odd.confidence, *told, basis=Basis.OBSERVATION)
        names = ("lr", "learning rate")
        yield finding(
            "training.lr_fault", odd.severity, ranks, odd.text, why, names=names, step=odd.step, key=f"lr {key}"
        )


def highest(state: JobState, rank: int) -> Curve:
    """The highest rate of all groups at each step that one was told: a group that stands at 0 is one that is frozen.

    One that was told last before another began is of an optimizer that was replaced, and counts no more from there on.
    """
    curves = list(rates_of(state, rank).values())
    steps = np.unique(np.concatenate([curve.steps for curve in curves])) if curves else np.zeros(0, np.int64)
    values = [_at(curve, steps, _replaced_at(curve, curves)) for curve in curves]
    return Curve(steps, np.max(values, axis=0) if values else np.zeros(0))


def _at(curve: Curve, steps: Ints, until: int) -> Floats:
    """The rate at these steps, the first one before it was told; minus infinity from `until` on."""
    values = curve.values[np.clip(np.searchsorted(curve.steps, steps, side="right") - 1, 0, None)]
    return np.where(steps >= until, -np.inf, values)


def _replaced_at(curve: Curve, all_: list[Curve]) -> int:
    later = [int(other.steps[0]) for other in all_ if other.steps[0] > curve.last_step]
    return min(later, default=np.iinfo(np.int64).max)


def _below(curve: Curve, limit: float, until: int) -> tuple[int, int] | None:
    """The step since when the rate has stayed at or below a limit, and for how many steps; None where it has not."""
    if not len(curve.values) or curve.values[-1] > limit:
        return None
    above = np.flatnonzero(curve.values > limit)
    if not len(above):
        return int(curve.steps[0]), until - int(curve.steps[0]) + 1
    since = int(curve.steps[above[-1] + 1])
    return since, until - since + 1


def never(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """It is zero from the first step on."""
    if not len(curve.values) or curve.values.any() or now_of(state, rank, curve) < ZERO_FOR:
        return None
    why = "the schedule has not left 0: a scheduler that is never stepped, or a factor of 0"
    if state.signals.fact(rank, "lr/0/optimizer") is None:
        return _written_as_zero(state, rank, curve, why)
    text = "the learning rate is 0 in all groups, from the first step on: nothing trains"
    return Odd("zero", Severity.CRITICAL, text, why, int(curve.steps[0]), 0.9)


def _written_as_zero(state: JobState, rank: int, curve: Curve, why: str) -> Odd | None:
    """A log's 0 may be a small rate that was rounded: it is one where the loss has had its time and has not fallen."""
    loss = curve_of(state.signals.series(rank, "loss")).values
    if len(loss) < SEEN or may_fall(loss, patient=True):
        return None
    text = (
        f"the learning rate is written as 0 from the first step on, and in {len(loss)} samples the loss has not fallen"
    )
    return Odd("zero", Severity.CRITICAL, text, why, int(curve.steps[0]), 0.8)


def negative(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """It is below zero: each step goes uphill."""
    below = np.flatnonzero(curve.values < 0)
    if len(below) < BELOW_ZERO:
        return None
    step, value = int(curve.steps[below[0]]), float(curve.values[below[-1]])
    text = f"the learning rate is negative since step {step} (now {figure(value)}): each step makes the loss larger"
    why = "the schedule goes on falling behind its end: it is shorter than the run, and has no floor at 0"
    return Odd("negative", Severity.CRITICAL, text, why, step, 0.95)


def gone(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """It has fallen to as good as nothing, and the run goes on."""
    if len(curve.values) < 2 or not curve.values.any():
        return None
    peak, now = float(curve.values.max()), now_of(state, rank, curve)
    below = _below(curve, GONE * peak, now)
    if below is None or below[1] < max(GONE_LEAST, GONE_FOR * now):
        return None
    text = (
        f"the learning rate has fallen from {figure(peak)} to {figure(float(curve.values[-1]))}, to less than a"
        f" ten-thousandth since step {below[0]}, and the run goes on without learning"
    )
    why = (
        "the schedule is over long before the run is: it is stepped for each batch where its lengths count epochs, or"
        " they are too short"
    )
    return Odd("over", Severity.CRITICAL, text, why, below[0], 0.85)


def low(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """It has been low for most of the run."""
    if len(curve.values) < 2 or not curve.values.any():
        return None
    peak, now = float(curve.values.max()), now_of(state, rank, curve)
    below = _below(curve, LOW * peak, now)
    if below is None or below[1] < max(LOW_LEAST, LOW_FOR * now) or curve.values[0] < LOW * peak:
        return None
    text = (
        f"the learning rate has been below a hundredth of its peak ({figure(peak)}) since step {below[0]} of {now}: the"
        " schedule was over early in the run"
    )
    why = "the schedule's lengths are too short, or it is stepped too often"
    return Odd("over", Severity.WARNING, text, why, below[0], 0.7)


def swinging(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """A single cosine that has gone through its minimum and up again, as often as only a cycle does."""
    fact = state.signals.fact(rank, "lr/scheduler")
    if fact is None or not fact[1].startswith("CosineAnnealingLR ") or len(curve.values) < 8:
        return None
    peak, least = float(curve.values.max()), float(curve.values.min())
    turns, down = 0, False
    for value in curve.values:
        if down and value > HIGH_PART * peak:
            turns, down = turns + 1, False
        elif value < LOW_PART * peak:
            down = True
    if turns < AGAIN:
        return None
    text = f"the learning rate swings between {figure(least)} and {figure(peak)}: {turns} times up again so far"
    why = (
        "a cosine that is made to be gone through once is stepped beyond its end: T_max counts epochs where it is"
        " stepped for each batch"
    )
    first = int(curve.steps[np.flatnonzero(curve.values < LOW_PART * peak)[0]])
    return Odd("swings", Severity.WARNING, text, why, first, 0.75)


def beyond(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """A single cosine that was at its end, and is stepped on: up again."""
    fact, made = state.signals.fact(rank, "lr/scheduler"), curve_of(state.signals.series(rank, "lr/scheduled"))
    length = re.search(r"^CosineAnnealingLR T_max=(\d+)", fact[1]) if fact is not None else None
    if length is None or not len(made.values) or len(curve.values) < 8 or made.values[-1] <= int(length[1]):
        return None
    peak, lowest = float(curve.values.max()), int(curve.values.argmin())
    least, now = float(curve.values[lowest]), float(curve.values[-1])
    risen = bool((np.diff(curve.values[lowest:]) >= 0).all()) and now - least > BEYOND * (peak - least)
    if not risen or not 0 < lowest < len(curve.values) - 1:
        return None
    text = (
        f"the learning rate rises again, from {figure(least)} at step {curve.steps[lowest]} to {figure(now)}: its"
        f" cosine is over after {length[1]} steps of its scheduler, and was stepped {made.values[-1]:.0f} times so far"
    )
    why = "T_max is shorter than the run: a cosine that is stepped beyond its end goes up again as it came down"
    return Odd("swings", Severity.WARNING, text, why, int(curve.steps[lowest]), 0.75)


def huge(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """It is so high for its optimizer that a step undoes the last one, and the loss says so."""
    kind = state.signals.fact(rank, "lr/0/optimizer")
    loss = state.signals.series(rank, "loss")
    if kind is None or kind[1] not in ADAPTIVE or loss is None or len(loss) < RISEN_AFTER or not len(curve.values):
        return None
    first, last = float(np.median(loss.values[:3])), float(np.median(loss.values[-10:]))
    rate = float(curve.values[-1])
    if rate < HUGE or last < first:
        return None
    text = f"the learning rate {figure(rate)} is far too high for {kind[1]}, and the loss has not fallen"
    why = f"{kind[1]} moves each weight by about the learning rate at each step"
    return Odd("high", Severity.WARNING, text, why, int(curve.steps[0]), 0.7)


def unstepped(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """A scheduler was made, and is not stepped, or so seldom that its warm-up hardly begins.

    Worth knowing, and no more: one that counts epochs, of which none is over yet, looks the same.
    """
    fact, made = state.signals.fact(rank, "lr/scheduler"), curve_of(state.signals.series(rank, "lr/scheduled"))
    now = now_of(state, rank, curve)
    if fact is None or "Plateau" in fact[1] or not len(made.values) or not len(curve.values) or now < HARDLY:
        return None
    times, kind = int(made.values[-1]), fact[1].partition(" ")[0]
    told = state.signals.series(rank, "lr/initial")
    initial = float(told.values[-1]) if told is not None and len(told) else 0.0
    warming = initial > 0 and curve.values.max() <= WARMING * initial
    if times and not (warming and times < SELDOM * now):
        return None
    if now < UNSTEPPED and times < HARDLY_TIMES:
        return None
    text = f"the scheduler ({kind}) has been stepped {times} times in {now} training steps"
    text = text.replace("stepped 0 times", "stepped not once")
    if warming:
        text += f", and the learning rate is still {figure(float(curve.values[-1]))} of {figure(initial)}"
    why = "scheduler.step() is not called, or once for each epoch where the schedule's lengths count batches"
    return Odd("unstepped", Severity.INFO, text, why, now, 0.6)


_RULES: tuple[Callable[[JobState, int, Curve], Odd | None], ...] = (
    never, negative, gone, low, swinging, beyond, climbing, first_alone, orphaned, huge, unstepped,
)  # fmt: skip
