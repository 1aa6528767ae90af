"""The terms of a loss by themselves: one that drowns the others, one that is gone.

What a term weighs is taken from the logged total: it is fitted as a sum of weights times terms. A regulariser with a
small weight is meant to be small; a term that has the weight of the others, makes up less than a hundredth of the loss
and does not fall is one that is not trained.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Floats, figure, lasting, noise
from diagd.daemon.detectors.training.run import Metric, Run
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.detectors.training.sums import Terms, bounds, fit, follows
from diagd.daemon.detectors.training.swamped import swamped
from diagd.daemon.state.metrics_names import LOSS_PARTS, canonical

SHARE = 0.01  # of the loss: below it a term is drowned
COMPARABLE = 0.05  # of the dominating term's weight: below it a term is small on purpose
FALLEN = 0.5
NEWS = 0.02  # of its level: less is no course of its own
GONE = 1e-4  # of the loss: whatever it does, nothing of it reaches the weights
MOVES = 3.0  # standard errors between a term's first and last third: a regulariser rises where the rest falls
ZERO_FOR = 20  # samples
WAS, STEADY = 0.01, 0.5  # of its largest, and of its level before: from above both to exactly 0 is no learning
STRETCH = 8  # samples above 0 that make a stretch of their own
BEFORE, LAST = 20, 3  # samples that show its level, and where it was right before


def terms(scene: Scene) -> Iterator[Finding]:
    """Of a loss that is logged with its terms."""
    run = Run(scene)
    parts = _parts(run)
    yield from _gone(run, parts)
    total = run.metric("loss")
    if total is None or len(parts) < 2 or run.reinforced or run.adversarial:
        return
    fitted = fit(total, parts)
    if fitted is not None and (found := _drowned(run, fitted) or swamped(run, fitted)) is not None:
        yield found


def _parts(run: Run) -> list[Metric]:
    """The terms as one rank logs them."""
    found = [m for m in run.metrics("loss_part") if len(m.curve.steps) >= ZERO_FOR + 1]
    return [m for m in found if m.rank == found[0].rank and canonical(m.name) in LOSS_PARTS]


def _drowned(run: Run, fitted: Terms) -> Finding | None:
    shares = np.median(np.abs(fitted.values * fitted.weights), axis=0)
    whole = float(shares.sum())
    main = int(shares.argmax())
    if whole <= 0 or shares[main] < (1 - SHARE) * whole:
        return None
    for number, metric in enumerate(fitted.metrics):
        like = fitted.weights[number] >= COMPARABLE * fitted.weights[main] and not follows(metric)
        drowned = shares[number] < GONE * whole and not bounds(metric) and not _falls(metric)
        if number != main and like and 0 < shares[number] < SHARE * whole and (drowned or not _moves(metric)):
            return _drowning(run, fitted.metrics[main], metric, float(shares[main] / whole))
    return None


def _falls(metric: Metric) -> bool:
    """Whether it is clearly lower now than it was at first."""
    third = len(metric.curve.values) // 3
    return float(np.median(metric.curve.values[-third:])) < FALLEN * float(np.median(metric.curve.values[:third]))


def _moves(metric: Metric) -> bool:
    """Whether it is learned, or traded against the others; what compares with data has no reason to rise."""
    values = metric.curve.values
    third = len(values) // 3
    error = noise(values) * (2.0 / third) ** 0.5
    fallen = float(values[:third].mean()) - float(values[-third:].mean())
    moved = fallen if canonical(metric.name) == "reconstruction_loss" else abs(fallen)
    return bool(moved > max(MOVES * error, 0.05 * abs(float(values[0]))))


def _drowning(run: Run, main: Metric, lost: Metric, share: float) -> Finding:
    text = (
        f"{main.name} makes up {share:.1%} of the loss; {lost.name} ({figure(lost.curve.values[-1])}, with a weight"
        f" like the other's) {_course(lost)} in {len(lost.curve.steps)} samples"
    )
    why = cause("scale", "the terms are of different units or sizes, and are added as they are", 0.7,
                *(seen(f"{one.name} {figure(one.curve.begin())} at first, {figure(one.curve.values[-1])} now", one.rank)
                  for one in (main, lost)))  # fmt: skip
    return finding("training.loss_component", Severity.WARNING, run.ranks, text, why, names=(lost.name, main.name),
                   step=main.curve.last_step)  # fmt: skip


def _course(metric: Metric) -> str:
    """What its curve has done, between its first and its last third."""
    third = max(len(metric.curve.values) // 3, 1)
    began, now = (float(np.median(part)) for part in (metric.curve.values[:third], metric.curve.values[-third:]))
    if now <= (1 - NEWS) * began:
        return f"has fallen no further than from {figure(began)} to {figure(now)}"
    return f"has risen from {figure(began)} to {figure(now)}" if now >= (1 + NEWS) * began else "has not fallen"


def _gone(run: Run, parts: list[Metric]) -> Iterator[Finding]:
    for metric in parts:
        values = metric.curve.values
        count = lasting(np.abs(values) <= metric.off_by)
        before = _stretch(values[:-count])[-BEFORE:]
        kind = canonical(metric.name)
        if count < ZERO_FOR or kind == "kl" or (kind == "policy_loss" and run.reinforced):
            continue  # other rules speak of those
        never = not len(before)
        if not never and not _breaks_off(np.abs(before), float(np.abs(values).max())):
            continue  # it has come down to 0
        first = int(metric.curve.steps[-count])
        when = "from the first step on" if never else f"since step {first}"
        exact = "exactly 0" if not metric.off_by else "0 as printed"
        text = f"the term {metric.name} of the loss is {exact} {when}, at {count} samples"
        text += "" if never else f"; it was {figure(float(np.median(before)))} before"
        why = cause("absent", "the term is not computed (its targets are empty or masked, its branch is not taken), or"
                    " is switched off", 0.6, seen(f"{count} values of 0", metric.rank, first))  # fmt: skip
        yield finding("training.loss_component", Severity.INFO, run.ranks, text, why, names=(metric.name,),
                      step=metric.curve.last_step, key=metric.name)  # fmt: skip
        return


def _stretch(values: Floats) -> Floats:
    """The values since the last of those zeros that a term begins with, where there are enough of them."""
    zeros = np.flatnonzero(values == 0)
    since = values[int(zeros[-1]) + 1 :] if len(zeros) else values
    return since if len(since) >= STRETCH else values


def _breaks_off(before: Floats, most: float) -> bool:
    """Whether a term was well above 0 until it was 0; one that is learned to 0 comes near it first, or meets it."""
    level, last = float(np.median(before)), float(np.median(before[-LAST:]))
    return bool(level >= WAS * most and last >= STEADY * level and before.all())
