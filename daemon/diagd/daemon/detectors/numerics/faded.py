"""A gradient that has faded away while the loss stands where it was: from the norm alone, where a log tells no more."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.numerics.weights import GRADIENT
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, curve_of, figure, lasting
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.state.metrics_names import find

LASTS, LEAST = 20, 40  # samples
FADED = 1e-5  # of the norm at first: a hundred times less than what a run that has learned its task comes down to
STANDS = 0.5  # of the loss at first: what has been learned has small gradients too
FAINT = 1e-7  # of the loss, from the first sample on: a thousand times less than what a task that is learned leaves
STILL = (
    0.9  # of the loss at first, where the norm never was more: optimizers that divide by it move weights all the same
)


def faded(scene: Scene) -> Iterator[Finding]:
    """Of the first rank whose log shows it; ranks log the norm over all of them."""
    run = Run(scene)
    if run.reinforced or run.adversarial:
        return  # their losses say little of what was learned
    for rank in scene.state.ranks():
        if any(name.startswith(GRADIENT) for name in scene.state.signals.names(rank)):
            continue  # each layer's own is known
        for signal in find(scene.state, rank, "grad_norm")[:1]:
            norm, loss = curve_of(scene.state.signals.series(rank, signal)), run.losses().get(rank)
            if loss is not None and (since := _since(norm, loss)) is not None:
                yield _finding(rank, signal.rpartition("/")[2], norm, loss, since)
                return


def _since(norm: Curve, loss: Curve) -> int | None:
    """The step since which it is so; None where it is not."""
    if len(norm.values) < LEAST or len(loss.values) < LEAST or norm.begin() <= 0:
        return None
    if _is_faint(norm, loss):
        return int(norm.steps[0])
    little = norm.values <= FADED * norm.begin()
    if lasting(little) < LASTS or loss.begin() <= 0:
        return None
    stands = float(np.median(loss.values[-LASTS:])) >= STANDS * loss.begin()
    return int(norm.steps[-lasting(little)]) if stands else None


def _is_faint(norm: Curve, loss: Curve) -> bool:
    """Whether it never was a gradient to speak of, and the loss has not moved."""
    level = float(np.median(loss.values[-LASTS:]))
    return bool((norm.values <= FAINT * loss.begin()).all()) and level >= STILL * loss.begin() > 0


def _finding(rank: int, name: str, norm: Curve, loss: Curve, since: int) -> Finding:
    stands = f"while the loss stands at {figure(loss.values[-1])} (first {figure(loss.begin())})"
    if since == norm.steps[0]:
        text = f"there is as good as no gradient, at no step since {since}: {name} {figure(norm.values[-1])}, {stands}"
    else:
        text = f"the gradient has faded away: {name} was {figure(norm.begin())} at first and is"
        text += f" {figure(norm.values[-1])} since step {since}, {stands}"
    told = seen(f"{name} {figure(norm.values[-1])}", rank, norm.last_step)
    why = cause("whole", "what the loss is computed from no longer depends on the weights: units that are saturated or"
                " dead, a loss that is cut off or clamped, or a scale that is far off", 0.6, told)  # fmt: skip
    names = name, "loss"
    return finding("numerics.gradient_vanishing", Severity.WARNING, (rank,), text, why, names=names, step=since)
