"""A loss that rises and stays: worse than where the run began, and not on its way back."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import FLOOR, Curve, coarse, figure, logarithmic, noise, rolling_median
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.detectors.training.spike import UNIT, spike, together

WIDTH = 9  # samples of the median that stands for the level
LEAST = 24
FIRST = 3  # samples
LASTS = 24  # samples since the best level
LOST = 1.5  # times what had been gained since the run began, and
WORSE = (
    2.0  # times the loss that the run began with: terms that grow as the others fall rise by less (codebooks, weights)
)
FAR = 8.0  # deviations
RETURNED = 0.3  # of the way back down, and it is a spike
BLOWN = 30.0  # times both the beginning and the best: not only worse but gone
BLOWN_FOR = 5
MOST = 0.5  # of the ranks
# Of the entropy of a classifier's targets: what was learned, and where nothing of it is left, for so many samples.
LEARNT, CHANCE, STAYS = 0.7, 0.97, 64
MUCH, FALLS = 0.6, 0.98  # of the loss that the run began with, at the best; of itself, and it is on its way back
WORSE_BY, PARTS = 1.5, 4  # of that entropy; of the run, each worse than the one before


class Divergence(NamedTuple):
    """One rank's loss that has left."""

    rank: int
    step: int  # of its best level
    best: float
    now: float
    blown: bool
    lost: int = 0  # the step at which it has left, or since which nothing is left of what was learned; 0 not known


def divergence(scene: Scene) -> Iterator[Finding]:
    """The loss of most ranks rises for good."""
    run = Run(scene)
    wild = run.reinforced or run.adversarial
    losses = together(run.losses())
    found = [one for rank, curve in losses.items()
             if (one := diverging(rank, curve, wild) or (None if wild else _by_chance(run, rank, curve))) is not None
             and not _is_spike(rank, curve, wild)]  # fmt: skip
    if len(found) <= MOST * len(losses):
        return
    worst = max(found, key=lambda one: one.now)
    ranks = tuple(one.rank for one in found)
    blown = all(one.blown for one in found)
    text = (
        f"the loss of {words.ranks_text(ranks)} has risen from {figure(worst.best)} at step {worst.step} to"
        f" {figure(worst.now)} and does not come back"
    )
    evidence = [seen(f"best {figure(one.best)}, now {figure(one.now)}", one.rank, one.step) for one in found[:8]]
    rates = [float(curve.values[-1]) for curve in run.rates(worst.rank)]
    if rates:
        evidence.append(seen(f"learning rate {figure(max(rates))}", worst.rank))
    rose = run.rate_rose(worst.rank, worst.step + LASTS)
    why = cause("rate", "the updates are too large: each step makes the loss worse", 0.65 if rose else 0.6, *evidence)
    severity = Severity.CRITICAL if blown else Severity.WARNING
    yield finding("training.loss_divergence", severity, ranks, text, why, names=("loss", "lr"),
                  step=worst.lost or losses[worst.rank].last_step)  # fmt: skip


def _is_spike(rank: int, curve: Curve, wild: bool) -> bool:
    """Whether it has only just jumped, and may come back as it came."""
    jump = spike(rank, curve, wild)
    return jump is not None and jump.age <= LASTS


def diverging(rank: int, curve: Curve, wild: bool = False) -> Divergence | None:
    """Whether one series does."""
    if not len(curve.values) or float(np.median(curve.values[-BLOWN_FOR:])) <= curve.begin():
        return None  # as good as all healthy runs: nothing more is computed for them
    found = _blown(rank, curve, UNIT if wild else 1e-12)
    if found is None and not wild:
        found = _rising(rank, curve) or _undone(rank, curve)
    return found._replace(lost=found.lost or _left_at(curve, found)) if found is not None else None


def _left_at(curve: Curve, found: Divergence) -> int:
    """The first step after the best one at which it is half of the way to where it is now."""
    away = (curve.steps > found.step) & (curve.values > (found.best + found.now) / 2)
    return int(curve.steps[away][0]) if away.any() else 0


def _by_chance(run: Run, rank: int, curve: Curve) -> Divergence | None:
    """Whether a classifier is no better than the classes' frequencies are, and was, or is ever worse."""
    told = run.curve(rank, "loss/target_entropy")
    if not len(told.values) or len(curve.values) < LEAST + STAYS or told.values[-1] <= 0:
        return None
    entropy = float(told.values[-1])
    return _lost(rank, curve, entropy) or _ever_worse(rank, curve, entropy)


def _ever_worse(rank: int, curve: Curve, entropy: float) -> Divergence | None:
    """Whether it never was better than that, and each part of the run is worse than the one before."""
    parts = [float(np.median(part)) for part in np.array_split(curve.values, PARTS)]
    if parts[-1] < WORSE_BY * entropy or parts[-1] - parts[0] < FAR * noise(curve.values):
        return None
    smooth = rolling_median(curve.values, WIDTH)
    if smooth.min() < CHANCE * entropy or any(after <= before for before, after in pairwise(parts)):
        return None
    at = int(smooth.argmin())
    return Divergence(rank, int(curve.steps[at + WIDTH - 1]), float(smooth[at]), float(smooth[-1]), False, 0)


def _lost(rank: int, curve: Curve, entropy: float) -> Divergence | None:
    """Whether one that had learned much gives no more than the classes' frequencies do, and stays so."""
    smooth = rolling_median(curve.values, WIDTH)
    at, stays = int(smooth.argmin()), smooth[-STAYS:]
    if smooth[at] > LEARNT * entropy or stays.min() < CHANCE * entropy:
        return None
    above = np.flatnonzero(smooth < CHANCE * entropy)
    since = int(curve.steps[above[-1] + WIDTH])
    return Divergence(rank, int(curve.steps[at + WIDTH - 1]), float(smooth[at]), float(smooth[-1]), False, since)


def _blown(rank: int, curve: Curve, unit: float) -> Divergence | None:
    values = curve.values
    if len(values) < BLOWN_FOR + 3:
        return None
    early = np.abs(values[: min(10, len(values) - BLOWN_FOR)])
    rest = np.abs(values[:-BLOWN_FOR])
    usual = max(float(np.median(early)), float(np.median(rest)), coarse(values), unit)
    highest = float(np.sort(rest)[-max(len(rest) // 4, 1)])  # rewards and heavy tails reach far, and come back
    last = values[-BLOWN_FOR:]
    if not (last > BLOWN * max(usual, 0.1 * highest)).all() or not last[-1] >= 0.5 * last.max():
        return None
    at = int(np.argmin(values))
    return Divergence(rank, int(curve.steps[at]), float(values[at]), float(np.median(last)), True)


def _undone(rank: int, curve: Curve) -> Divergence | None:
    """Whether all that was learned, which was much, is gone, for so many samples that it does not come back."""
    if len(curve.values) < LEAST + STAYS or curve.values.min() <= 0:
        return None
    smooth = rolling_median(curve.values, WIDTH)
    at, stays = int(smooth.argmin()), smooth[-STAYS:]
    first, last = (float(np.median(part)) for part in np.array_split(stays, PARTS)[:: PARTS - 1])
    if smooth[at] > MUCH * curve.begin() or stays.min() < curve.begin() or last < FALLS * first:
        return None  # harder data come down again
    above = np.flatnonzero(smooth < curve.begin())
    since = int(curve.steps[above[-1] + WIDTH])
    return Divergence(rank, int(curve.steps[at + WIDTH - 1]), float(smooth[at]), float(smooth[-1]), False, since)


def _rising(rank: int, curve: Curve) -> Divergence | None:
    if len(curve.steps) < LEAST + LASTS:
        return None
    least = coarse(curve.values)
    level = logarithmic(curve.values, least)
    smooth, smooth_level = rolling_median(curve.values, WIDTH), rolling_median(level, WIDTH)
    at = int(smooth_level.argmin())
    if len(smooth) - at < LASTS:
        return None
    best, now = float(smooth[at]), float(smooth[-1])
    enough = max(LOST * (curve.begin() - best), WORSE * max(abs(curve.begin()), least))
    deviation = max(noise(level), FLOOR)
    highest = float(smooth_level[at:].max())
    back = highest - float(smooth_level[-1]) > RETURNED * (highest - float(smooth_level[at]))
    if now - best < enough or (smooth_level[-1] - smooth_level[at]) < FAR * deviation / 2 or back:
        return None
    # What is learned in a few samples is no longer what it began with by the time that others are a beginning still.
    if float(np.median(curve.values[-LASTS // 2 :])) < max(curve.begin(), float(np.median(curve.values[:FIRST]))):
        return None
    blown = now > BLOWN * max(curve.begin(), abs(best), least)
    return Divergence(rank, int(curve.steps[at + WIDTH - 1]), best, now, blown)
