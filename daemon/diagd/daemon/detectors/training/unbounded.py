"""A loss that falls without a bound: a term with a minus sign that can be made as large as one likes.

The log-density of a model may fall below zero too, and goes on falling; but ever more slowly, and not to many times
what it began with.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import START, Curve, figure, rolling_median
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.detectors.training.spike import together

BEYOND = 30.0  # times the largest that it was above zero at its beginning
WIDTH, LEAST = 5, 12  # samples of a median, and below zero
FASTER = 1.5  # times as far in the later half of its way as in the earlier


def unbounded(scene: Scene) -> Iterator[Finding]:
    """The losses of most ranks, which fall alike."""
    run = Run(scene)
    if run.reinforced or run.adversarial or run.fact("loss/misused") == "scores":
        return
    losses = together(run.losses())
    found = {rank: step for rank, curve in losses.items() if (step := falls(curve)) is not None}
    if not found or 2 * len(found) <= len(losses):
        return
    rank, step = next(iter(found.items()))
    values = losses[rank].values
    first, now = figure(float(np.median(values[:START]))), figure(float(values[-1]))
    text = f"the loss of {words.ranks_text(tuple(found))} falls without a bound: from {first} to {now}, ever faster"
    why = cause(
        "unbounded",
        "a term is maximised that has no largest value (a negated loss, a distance), and outweighs the others",
        0.75,
        seen(f"loss {now}, below 0 since step {step}", rank),
    )
    yield finding("training.loss_divergence", Severity.WARNING, tuple(found), text, why, names=("loss",),
                  step=losses[rank].last_step, key="unbounded")  # fmt: skip


def falls(curve: Curve) -> int | None:
    """Since which step it is below zero, where it falls without a bound."""
    above = np.flatnonzero(curve.values >= 0)
    since = int(above[-1]) + 1 if len(above) else 0
    below = curve.values[since:]
    if len(below) < LEAST or not since:
        return None
    smooth = rolling_median(below, WIDTH)
    middle, last = float(smooth[len(smooth) // 2]), float(smooth[-1])
    first = np.abs(curve.values[:START])
    usual = float(np.median(first) if since >= START else first.max())
    if -last < BEYOND * max(usual, 1e-12) or float(smooth.min()) < 2 * last:
        return None
    return int(curve.steps[since]) if middle - last > FASTER * (float(smooth[0]) - middle) else None
