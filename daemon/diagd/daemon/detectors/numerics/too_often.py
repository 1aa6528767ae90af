"""A schedule that is gone through too fast, as its scheduler is stepped several times in each training step."""

from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors.numerics.odd_rate import Odd
from diagd.daemon.detectors.training.curves import curve_of
from diagd.daemon.state.job import JobState

KEY = "too often"
KEYS = ("over", "swings", "negative")  # what a schedule that is too fast brings about
LEAST = 2  # times a step
WHOLE = 0.1  # of a step, from a whole number: what is stepped for each micro-batch is stepped as often each time
LONG = 16  # steps over which it was counted


class Times(NamedTuple):
    """How often a scheduler is stepped in each training step, and how many backward passes there are in one."""

    scheduler: int
    passes: int  # 0 not known


def too_often(state: JobState, rank: int) -> Times | None:
    """None where it is stepped once a step, or less, or now and then; or that is not known."""
    made = curve_of(state.signals.series(rank, "lr/scheduled"))
    told = curve_of(state.signals.series(rank, "gradients/passes"))
    passes = int(told.values[-1]) if len(told.values) else 0
    steps, counts = made.steps, made.values
    once = len(counts) == 1  # then it is taken to have begun with the first step, and must be as often as the passes
    if once:
        steps, counts = np.append(0, steps), np.append(0.0, counts)
    if len(counts) < 2 or steps[-1] - steps[0] < LONG:
        return None
    each = np.diff(counts) / np.diff(steps)
    times = round(float(np.median(each)))
    if times < LEAST or float(np.abs(each - times).max()) > WHOLE * times or (once and times != passes):
        return None
    return Times(times, passes)


def explained(state: JobState, rank: int, odd: Odd) -> Odd:
    """The same; with the cause where the schedule is gone through too fast."""
    found = too_often(state, rank) if odd.key in KEYS else None
    if found is None:
        return odd
    why = f"the scheduler is stepped {found.scheduler} times in each training step, so the schedule is over"
    why += f" {found.scheduler} times as early as it was made to be"
    if found.scheduler == found.passes:
        why += ": once for each backward pass of the accumulation, and not once for each optimizer step"
    elif found.scheduler == state.world_size:
        why += ": as often as there are ranks (accelerate steps a prepared scheduler for each process)"
    return odd._replace(why=why, cause=KEY, confidence=max(odd.confidence, 0.9))
