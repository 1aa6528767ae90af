"""A schedule that reaches some parameter groups or optimizers, and not those that train."""

import numpy as np

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.numerics.odd_rate import STEP_SPACING, Odd, now_of, rates_of
from diagd.daemon.detectors.training.curves import Curve, curve_of, figure
from diagd.daemon.state.job import JobState

ALONE, SHAPE, FALLEN = 100, 16, 0.8  # steps; values of a schedule; of its peak, where it is plain that they part


def first_alone(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """A schedule of the script's own that is written into the first group of several.

    They began alike: the others have stayed where the first one has its peak.
    """
    several = state.signals.fact(rank, "lr/1/group") is not None
    if not several or state.signals.fact(rank, "lr/scheduler") is not None:
        return None
    groups = rates_of(state, rank)
    places = {n: state.signals.fact(rank, f"{n}/group") for n in groups}
    firsts = [n for n, place in places.items() if place is not None and place[1] == "0"]
    others = [groups[n].values for n in groups if n not in firsts]
    if len(firsts) != 1 or not others or now_of(state, rank, curve) < ALONE:
        return None
    mine = groups[firsts[0]].values
    peak = float(mine.max())
    constant = all(np.ptp(one) == 0 and abs(one[0] - peak) <= 0.01 * peak for one in others)
    if not constant or len(np.unique(mine)) < SHAPE or mine[-1] > FALLEN * peak:
        return None
    step = int(groups[firsts[0]].steps[np.flatnonzero(mine < peak)[0]])
    text = (
        f"the learning rate of the first parameter group has gone from {figure(peak)} to {figure(float(mine[-1]))}, and"
        f" that of the other {len(others)} has stayed at {figure(peak)} since the first step"
    )
    why = "the schedule is written into param_groups[0] alone, and the other groups have none"
    return Odd("first", Severity.WARNING, text, why, step, 0.75)


def orphaned(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """The optimizer was replaced by another one, and the scheduler goes on with the old one."""
    groups = list(rates_of(state, rank).values())
    if (never := state.signals.series(rank, "lr/orphaned")) is not None and len(never) and never.values[-1]:
        return _never_its_own(state, rank, groups)
    stepped = curve_of(state.signals.series(rank, "lr/scheduled"))
    now = max((one.last_step for one in groups), default=0)
    live = [one for one in groups if one.last_step >= now - 2 * STEP_SPACING]
    since = min((int(one.steps[0]) for one in live), default=0)
    old = [one for one in groups if one.last_step < since]
    if not old or now - since < ALONE or any(np.ptp(one.values) for one in live):
        return None
    scheduled = any(len(np.unique(one.values)) >= SHAPE for one in old)
    after = stepped.values[stepped.steps > since]
    if not scheduled or len(after) < 2 or after[-1] - after[0] < SHAPE:
        return None
    rate = figure(float(max(one.values[-1] for one in live)))
    text = (
        f"the learning rate has stayed at {rate} since another optimizer took over at step {since}: the scheduler is"
        f" still stepped ({after[-1] - after[0]:.0f} times at least since), for the optimizer before it"
    )
    why = "a scheduler holds the optimizer that it was made with: a new optimizer needs a new one"
    return Odd("orphaned", Severity.WARNING, text, why, since, 0.85)


def _never_its_own(state: JobState, rank: int, groups: list[Curve]) -> Odd | None:
    """Since the beginning: the scheduler's optimizer has never stepped, and the rates of those that do stay."""
    fact = state.signals.fact(rank, "lr/scheduler")
    if fact is None or not groups or any(np.ptp(one.values) for one in groups):
        return None
    kind, rate = fact[1].partition(" ")[0], figure(float(max(one.values[-1] for one in groups)))
    text = f"the scheduler ({kind}) is stepped for an optimizer that never steps: the learning rate stays at {rate}"
    why = "a scheduler holds the optimizer that it was made with, and another one was made after it"
    return Odd("orphaned", Severity.WARNING, text, why, int(groups[0].steps[0]), 0.9)
