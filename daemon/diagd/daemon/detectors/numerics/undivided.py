"""More backward passes to a step than before, whose losses are added up instead of averaged.

The gradient of the step is then so many times as long: with SGD that is so many times the learning rate. Only where the
loss is worse off since then: some scripts mean it so, and Adam hardly minds.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.numerics.weights import SOME
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, figure
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

MORE = 2.0  # times as many passes
BEFORE, AFTER = 8, 6  # samples of the norm on each side
LONGER = 0.5  # of what adding them up makes of the norm; averaged, it gets no longer
WORSE, LASTS = 1.3, 10  # times the loss before, in the middle of so many newest samples
LOWERED = 2.0  # of the factor, within which the rate was divided by it instead


def undivided(scene: Scene) -> Iterator[Finding]:
    """One finding for all ranks."""
    run = Run(scene)
    found = {r: at for r in scene.state.signals.ranks("gradients/passes")[:SOME] if (at := _since(run, r)) is not None}
    if not found or run.reinforced or run.adversarial:
        return
    rank, (step, before, after) = next(iter(found.items()))
    norms, losses = run.curve(rank, "grad_norm"), run.losses()[rank]
    was, now = _sides(norms, step)
    ranks = tuple(found)
    text = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'adds', 'add')} up the losses of {after:.0f} backward passes a"
        f" step since step {step}, where it was {before:.0f}: the gradient is {now / was:.0f} times as long, and the"
        f" loss is {figure(_level(losses, step))} before that and {figure(_newest(losses))} now"
    )
    why = cause("undivided", "the loss of each pass is not divided by their number, which multiplies the learning rate"
                " by it", 0.8, seen(f"grad_norm {figure(was)} before, {figure(now)} after", rank, step))  # fmt: skip
    yield finding("training.gradient_accumulation", Severity.WARNING, ranks, text, why,
                  names=("grad_norm", "loss", "accumulation"), step=step, key="undivided")  # fmt: skip


def _since(run: Run, rank: int) -> tuple[int, float, float] | None:
    """The step, and how many passes there were before and are since."""
    passes, norms, losses = run.curve(rank, "gradients/passes"), run.curve(rank, "grad_norm"), run.losses().get(rank)
    if len(passes.values) < 2 or losses is None or not len(losses.values):
        return None
    (before, after), step = passes.values[-2:], int(passes.steps[-1])
    factor = float(after / before)
    if factor < MORE or (norms.steps < step).sum() < BEFORE or (norms.steps >= step).sum() < AFTER:
        return None
    was, now = _sides(norms, step)
    if now < LONGER * factor * was or _rate_went_down(run.curve(rank, "lr/0"), step, factor):
        return None
    return (step, float(before), float(after)) if _newest(losses) > WORSE * _level(losses, step) > 0 else None


def _sides(norms: Curve, step: int) -> tuple[float, float]:
    before, after = norms.values[norms.steps < step], norms.values[norms.steps >= step]
    return float(np.median(before[-BEFORE:])), float(np.median(after[:AFTER]))


def _rate_went_down(rates: Curve, step: int, factor: float) -> bool:
    before, after = rates.values[rates.steps < step], rates.values[rates.steps >= step]
    return bool(len(before) and len(after) and after[0] * factor < LOWERED * before[-1])


def _level(losses: Curve, step: int) -> float:
    before = losses.values[losses.steps < step]
    return float(np.median(before[-LASTS:])) if len(before) >= BEFORE else 0.0


def _newest(losses: Curve) -> float:
    return float(np.median(losses.values[-LASTS:]))
