"""When the norm over all gradients has left the range that the run began with, and for good."""

from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors.training.curves import Curve, rolling_median

HIGH = 1e3  # a common alarm for the norm over all gradients; by itself it fires on every loss that is a sum
TIMES = 30.0  # over what the run began with
FAR = 1e4  # so many times over it where the norm is not that high
KEPT_TIMES = 5.0  # over the first one, where it is known to add up
LEAST = 10.0
WIDTH = 5  # samples of the median that stands for the level: one spike is none
START = 24  # samples that show what the run began with
LEAST_SAMPLES = 12


class Left(NamedTuple):
    """A norm that has left its range."""

    step: int  # at which it was seen out of it first
    began: float  # the level
    now: float
    may_since: int  # the first step in which it can have left: norms are taken of some steps


def exploded(curve: Curve) -> Left | None:
    """Since when, the level at the beginning and now; None where the norm is in its range.

    The beginning is the lowest level of the first samples, and of all up to a third of the run: norms fall while a
    model warms up.
    """
    if len(curve.values) < LEAST_SAMPLES or curve.values[-1] < LEAST / 2:
        return None
    levels = rolling_median(curve.values, WIDTH)
    began = float(levels[: max(START, len(levels) // 3)].min())
    high = np.maximum(HIGH, TIMES * began) if began * FAR > HIGH else max(FAR * began, LEAST)
    above = levels > high
    if not above[-1] or not (curve.values[-3:] > high / 2).all():
        return None
    below = np.flatnonzero(~above)
    last = (int(below[-1]) + 1 if len(below) else 0) + WIDTH - 1  # of the samples of the first level that is
    inside = np.flatnonzero(curve.values[: last + 1] <= high)
    first = int(inside[-1]) + 1 if len(inside) else 0
    return _left(curve, min(first, last), began, float(levels[-1]))


def adds_up(curve: Curve) -> Left | None:
    """The same of gradients that are never cleared; what adds up below an explosion is told as that alone (kept.py)."""
    if len(curve.values) < LEAST_SAMPLES:
        return None
    began = float(curve.values[0])
    above = curve.values > max(HIGH, KEPT_TIMES * began)
    below = np.flatnonzero(~above)
    if not above[-WIDTH:].all():
        return None
    return _left(curve, int(below[-1]) + 1 if len(below) else 0, began, float(curve.values[-1]))


def _left(curve: Curve, at: int, began: float, now: float) -> Left:
    """By the first sample that is out of the range."""
    step = int(curve.steps[at])
    return Left(step, began, now, int(curve.steps[at - 1]) + 1 if at else step)
