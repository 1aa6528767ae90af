"""Gradients that are as large as the loss is: what they are multiplied by is in the loss, and in no layer.

A factor on the loss is a factor on every gradient. What grows on its way through layers, or with weights that run
away, grows by other factors in other layers, and by another one than the loss.
"""

from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors.numerics.weights import weights
from diagd.daemon.detectors.training.curves import Curve, curve_of
from diagd.daemon.state.job import JobState

LEAST = 30.0  # times: as for an explosion
# By what power of the gradients' factor the loss has grown. Of a factor on the loss it is the first, but for noise and
# what the steps have done since; where weights run away a squared loss grows by the second, and others by more.
POWER = 0.7, 1.4
LIKE = 4.0  # times: so far apart are at most two parameters' factors, in the same samples
MOST_ALIKE = 0.9  # of the parameters: a few with next to no gradient have noise for a factor
LEAST_PARAMETERS = 4
SIDE = 5  # samples on each side, after it those that there are
SMOOTH = 3.0  # between neighbours: a factor comes at once, what runs away climbs over several samples
LARGE = 1e3  # of a loss and a norm at first: as a common alarm has it
EVEN = 100.0  # times: between the largest and the smallest matrix's gradient of a network that is in order


class Scaled(NamedTuple):
    """By how much the loss and the gradients are larger, and whether that came with a step."""

    loss: float  # times; from the first step on the loss at first
    norm: float
    began: bool
    alike: bool  # the gradients of all modules were seen to be so


def scaled(state: JobState, rank: int, may_since: int, since: int) -> Scaled | None:
    """None where it is not known that it is the loss.

    Args:
        may_since: The first step in which the norm can have left its range.
        since: The one at which it was seen out of it first.
    """
    norm, loss = (curve_of(state.signals.series(rank, name)) for name in ("grad_norm", "loss"))
    return _at_once(state, rank, norm, loss, may_since, since) or _from_the_start(state, rank, norm, loss)


def _at_once(state: JobState, rank: int, norm: Curve, loss: Curve, may_since: int, since: int) -> Scaled | None:
    grown, more = _factor(norm, may_since, since), _factor(loss, may_since, since)
    if grown is None or more is None or min(grown, more) < LEAST or not _is_near(more, grown):
        return None
    each = [_factor(one.gradient, may_since, since) for one in weights(state, rank)]
    factors = np.array([one for one in each if one is not None])
    if len(factors) < LEAST_PARAMETERS:  # these are told of fewer steps
        return Scaled(more, grown, began=True, alike=False)
    middle = float(np.median(factors))
    alike = (factors >= middle / LIKE) & (factors <= middle * LIKE)
    if alike.mean() < MOST_ALIKE or middle < LEAST or not _is_near(middle, grown):
        return None
    return Scaled(more, grown, began=True, alike=True)


def _factor(curve: Curve, may_since: int, since: int) -> float | None:
    """How many times as large it is right after the step as right before; None where it has come by degrees."""
    before, after = curve.values[curve.steps < may_since][-SIDE:], curve.values[curve.steps >= since][:SIDE]
    if len(before) < SIDE or not len(after) or before.min() <= 0 or after.min() <= 0:
        return None
    factor = float(np.median(after) / np.median(before))
    return factor if after[0] / before[-1] > factor / SMOOTH**2 else None


def _is_near(one: float, other: float) -> bool:
    """Of two factors well above 1."""
    return POWER[0] <= float(np.log(one) / np.log(other)) <= POWER[1]


def _from_the_start(state: JobState, rank: int, norm: Curve, loss: Curve) -> Scaled | None:
    """Large from the first step on, in all matrices alike."""
    if len(norm.values) < SIDE or len(loss.values) < SIDE:
        return None
    at_first, lost = float(np.median(norm.values[:SIDE])), float(np.median(loss.values[:SIDE]))
    each = [one.gradient.values[:SIDE] for one in weights(state, rank) if one.is_matrix]
    norms = np.array([float(np.median(values)) for values in each if len(values)])
    if min(at_first, lost) < LARGE or len(norms) < LEAST_PARAMETERS or norms.min() <= 0:
        return None
    return Scaled(lost, at_first, began=False, alike=True) if norms.max() / norms.min() <= EVEN else None
