"""A loss that jumps, and the ranks whose own loss did.

Method: median and median absolute deviation on a logarithmic scale over the 64 samples before (OLMo-core takes mean
and standard deviation of 128, which one spike poisons). One step far off is the data's heavy tail; three of five are a
spike.
"""

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import FLOOR, Curve, coarse, figure, logarithmic, spread, straightened
from diagd.daemon.detectors.training.needles import needles
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

WINDOW, LEAST = 64, 16
QUIET = 16  # a jump stands above all of so many before it
JUMP = float(np.log(1.5))
FAR = 8.0  # deviations
OF, PERSISTS = 5, 3
SPOKEN_OF = 60  # samples for which a spike is news; after that only if the loss has not come back
# Of what had been gained since the run began: beyond 1, the loss is worse than untrained.
ALONE = 1.2  # where one rank's is, and no other's
ALL = 4.0  # other data, of which a model is certain and wrong, is a few times worse for all
WORTH = 0.15  # less of it lost is a ripple: a loss near 0 moves by large factors and little
UNIT = 0.1  # where advantages are normalised, a surrogate that is 0 by construction is no scale of its own
HEAVY = 10.0  # times the worst before, where rewards or adversaries make the loss noisy by nature
# On a plain scale, where noise is added to a loss near its floor and is large beside it on a logarithmic one: all of
# the samples are so many times the highest before, and half of what had been gained is lost.
TIMES, HALF = 2.0, 0.5
# Where all ranks are given another task a loss near 0 (a part of the jump) jumps and is soon near 0 again, though on a
# logarithmic scale it does not come back.
NEAR_0, RELEARNED = 0.1, 0.03
FIRST = 3  # samples, one of which shows what an untrained model gives, also where it learns within a few steps
FEW = 0.5  # of the ranks: if more jump at once, it is the weights' doing, not one rank's data


class Spike(NamedTuple):
    """A jump of one rank's loss."""

    rank: int
    step: int
    before: float
    peak: float
    size: float  # on the logarithmic scale
    lost: float  # share of what had been gained since the run began
    back: bool
    relearned: bool
    age: int  # samples since


def spikes(scene: Scene) -> Iterator[Finding]:
    """The first spike that is still of interest, with the ranks where it began."""
    run = Run(scene)
    wild = run.reinforced or run.adversarial
    losses = together(run.losses())
    found = [one for rank, curve in losses.items() if (one := spike(rank, curve, wild)) is not None]
    found = [one for one in found if not _follows(one, losses, wild)]
    if not found:
        yield from needles(run, losses)
        return
    first = min(one.step for one in found)
    began = [one for one in found if one.step == first]
    largest = max(one.size for one in began)
    culprits = [one for one in began if one.size > 0.5 * largest]
    yield _finding(run, culprits, len(losses))


def together(losses: dict[int, Curve]) -> dict[int, Curve]:
    """The ranks' series at the steps that all of them have told: none is first because its news is, or its sample."""
    newest = max((curve.last_step for curve in losses.values()), default=0)
    lively = {rank: curve for rank, curve in losses.items() if curve.last_step > newest - SPOKEN_OF}
    last = min((curve.last_step for curve in lively.values()), default=0)
    cut = {rank: curve.until(last) for rank, curve in lively.items()}
    if len({len(curve.steps) for curve in cut.values()}) < 2:
        return cut
    common = reduce(np.intersect1d, [curve.steps for curve in cut.values()])
    return {rank: curve.at(common) for rank, curve in cut.items()}


def _follows(one: Spike, losses: dict[int, Curve], wild: bool) -> bool:
    """Whether another rank's loss had jumped shortly before: what spoilt its step has spoilt the weights of all."""
    others = (each for rank, curve in losses.items() if rank != one.rank for each in _spikes(rank, curve, wild))
    return any(0 < one.step - other.step <= WINDOW for other in others)


def spike(rank: int, curve: Curve, wild: bool = False) -> Spike | None:
    """The first spike in a series that is young or from which the loss has not come back; None where there is none."""
    told = (one for one in _spikes(rank, curve, wild) if one.age <= SPOKEN_OF or not (one.back or one.relearned))
    return next(told, None)


def _spikes(rank: int, curve: Curve, wild: bool) -> Iterator[Spike]:
    level = logarithmic(curve.values, coarse(curve.values))
    for at in _jumps(level):
        one = _spike(rank, curve, level, at, wild)
        if one is not None:
            yield one


def _jumps(level: np.ndarray) -> list[int]:
    """Where the loss stands clearly above all of the samples before it."""
    if len(level) < LEAST + PERSISTS:
        return []
    highest = np.lib.stride_tricks.sliding_window_view(level, QUIET).max(axis=1)[:-1]
    return [int(i) + QUIET for i in np.flatnonzero(level[QUIET:] > highest + JUMP)]


def _spike(rank: int, curve: Curve, level: np.ndarray, at: int, wild: bool) -> Spike | None:
    before = level[max(at - WINDOW, 0) : at]
    middle, deviation = float(np.median(before[-QUIET:])), max(spread(straightened(before)), FLOOR)
    highest = float(before[before <= middle + FAR * deviation].max())  # without earlier spikes
    limit = max(middle + FAR * deviation, highest + 0.5 * (highest - middle))
    after = level[at : at + OF]
    high = after > limit
    values = curve.values
    worth = WORTH
    if high.sum() < (OF if wild else PERSISTS):
        if wild or not _is_plain(values[max(at - WINDOW, 0) : at], values[at : at + OF]):
            return None
        high, worth = np.ones(OF, np.bool_), HALF
    peak, usual = float(np.median(values[at : at + OF][high])), float(np.median(values[at - QUIET : at]))
    if wild and peak < HEAVY * max(float(np.abs(values[:at]).max()), coarse(values), UNIT):
        return None
    gained = max(curve.begin(), float(values[:FIRST].max())) - usual
    lost = (peak - usual) / gained if gained > 1e-3 * abs(usual) else np.inf
    if lost < worth:
        return None
    back = float(np.median(level[-OF:])) < middle + 0.5 * FAR * deviation
    now = float(np.median(values[-OF:]))
    near = now < min(usual + RELEARNED * (peak - usual), HALF * curve.begin())  # what is untrained is not near 0
    relearned = not back and usual < NEAR_0 * peak and near
    size = float(after[high].max()) - middle
    return Spike(rank, int(curve.steps[at]), usual, peak, size, float(lost), back, relearned, len(level) - at)


def _is_plain(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether a loss jumps far beyond its noise on a plain scale."""
    middle = float(np.median(before[-QUIET:]))
    limit = max(middle + FAR * max(spread(before), 1e-12), TIMES * float(before.max()))
    return len(after) == OF and bool((after > limit).all())


def _finding(run: Run, culprits: list[Spike], world: int) -> Finding:
    worst = max(culprits, key=lambda one: one.size)
    ranks = tuple(one.rank for one in culprits)
    alone = len(ranks) <= FEW * world
    of_rate = not alone and run.rate_rose(worst.rank, worst.step)
    bad = worst.lost >= (ALONE if alone else ALL) and not of_rate and (alone or not worst.relearned)
    severity = Severity.WARNING if bad else Severity.INFO
    text = (
        f"the loss of {words.ranks_text(ranks)} jumps at step {worst.step}, from {figure(worst.before)} to"
        f" {figure(worst.peak)}"
    )
    text += ", that of the other ranks does not at that step" if alone else ""
    text += ". It has come back" if worst.back else ". It is near 0 again" if worst.relearned else ""
    evidence = [seen(f"loss {figure(one.before)} before, {figure(one.peak)} from then on", one.rank, one.step)
                for one in culprits[:8]]  # fmt: skip
    gradient = run.gradient(worst.rank)
    near = gradient.values[(gradient.steps >= worst.step) & (gradient.steps < worst.step + OF)]
    early = gradient.values[gradient.steps < worst.step][-WINDOW:]
    if len(near) and len(early):
        norms = f"{figure(float(np.median(early)))} before, up to {figure(float(near.max()))} then"
        evidence.append(seen(f"gradient norm {norms}", worst.rank))
    if alone:
        why = cause("data", "its own batches changed: a bad shard, another preprocessing or scale, wrong labels", 0.7,
                    *evidence)  # fmt: skip
    elif of_rate:
        why = cause("rate", "the learning rate rose just before it", 0.65, *evidence)
    else:
        why = cause("step", "a batch far from the others, or an update too large for where the weights were", 0.5,
                    *evidence)  # fmt: skip
    names = ("loss", "lr") if of_rate else ("loss",)
    return finding("training.loss_spike", severity, ranks, text, why, names=names, step=worst.step)
