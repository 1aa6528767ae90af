"""Models whose gradients were there and are all exactly zero since a step, and the loss is not, or became so at once.

In float16 without a scaler it is what becomes of a loss in small units; else something between it and the model passes
nothing on. A loss that has come down to zero, as one with a margin once that is kept, is learned; one that was as ever
in the step before is multiplied by 0, or divided by a sum that has overflowed.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.numerics.weights import GRADIENT, SOME, Weight, weights
from diagd.daemon.detectors.numerics.zeroed import FLOAT16
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, curve_of, figure
from diagd.daemon.detectors.training.rewards import teach_nothing
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.state.signals import SignalBook

ZERO, ZERO_STEPS = 6, 20  # samples in a row, and steps that they span
BEFORE = 8  # samples with a gradient
LAYERS = 2
NEAR, LEARNED = 0.1, 0.02  # of the loss's level: the last one before; of where it began: little is left to learn


def silenced(scene: Scene) -> Iterator[Finding]:
    """One finding for each model."""
    models: dict[str, dict[int, int]] = {}
    lost: dict[str, list[Weight]] = {}
    for rank in scene.state.signals.ranks("grad_norm")[:SOME]:
        by_model: dict[str, list[Weight]] = {}
        for weight in weights(scene.state, rank):
            if weight.is_matrix:
                by_model.setdefault(weight.model, []).append(weight)
        for model, layers in by_model.items():
            if (since := _since(layers)) and _has_loss(scene.state.signals, rank, since):
                models.setdefault(model, {})[rank] = since
                lost.setdefault(model, layers)
    if not models or teach_nothing(scene):
        return
    run = Run(scene)
    if run.adversarial or run.reinforced:
        return  # parts of these learn by turns, or learn nothing from rewards that are all equal
    for model, by_rank in models.items():
        yield _finding(scene.state.signals, model, by_rank, lost[model])


def _since(layers: list[Weight]) -> int:
    """The step since which all of them are zero; 0 where one is not, or too little is known."""
    if len(layers) < LAYERS or any(one.newest(GRADIENT) != 0.0 for one in layers):
        return 0
    since = 0
    for one in layers:
        values, steps = one.gradient.values, one.gradient.steps
        there = np.flatnonzero(values > 0)
        if len(there) < BEFORE or len(values) - there[-1] - 1 < ZERO or steps[-1] - steps[there[-1] + 1] < ZERO_STEPS:
            return 0
        since = max(since, int(steps[there[-1] + 1]))
    return since


def _has_loss(signals: SignalBook, rank: int, since: int) -> bool:
    """Whether the loss was not zero all the while, or fell to that from one step to the next."""
    loss = curve_of(signals.series(rank, "loss"))
    values = loss.values[loss.steps >= since]
    return len(values) >= ZERO and bool((values != 0).all() or (not values.any() and _fell_at_once(loss)))


def _fell_at_once(loss: Curve) -> bool:
    before = np.abs(_before_zero(loss))
    if len(before) < BEFORE or not before.all():
        return False
    level = float(np.median(before[-BEFORE:]))
    return bool(before[-1] > NEAR * level and level > LEARNED * float(np.median(before[:BEFORE])))


def _before_zero(loss: Curve) -> NDArray[np.float64]:
    """The values until it was zero for good."""
    there = np.flatnonzero(loss.values)
    return loss.values[: there[-1] + 1] if len(there) else loss.values[:0]


def _loss(signals: SignalBook, rank: int) -> str:
    loss = curve_of(signals.series(rank, "loss"))
    if loss.values[-1] != 0:
        return " not"
    return f" too, which was {figure(float(np.median(_before_zero(loss)[-BEFORE:])))} until then"


def _is_unscaled(signals: SignalBook, rank: int, since: int) -> bool:
    """Whether the rank computes in float16, and nothing scales its loss any more."""
    cast, scale = signals.series(rank, "autocast/on"), signals.series(rank, "scaler/scale")
    in_half = cast is not None and bool(cast.values[-1] == FLOAT16)
    return in_half and (scale is None or not len(scale) or int(scale.steps[-1]) < since)


def _finding(signals: SignalBook, model: str, by_rank: dict[int, int], lost: list[Weight]) -> Finding:
    ranks, rank = tuple(sorted(by_rank)), min(by_rank)
    since, some = by_rank[rank], ", ".join(one.name for one in lost[:3])
    text = f"all gradients of {model} are exactly zero since step {since} ({some}), and the loss is"
    text += _loss(signals, rank)
    told = [seen(f"norm of the gradient of {one.name}: {figure(float(one.gradient.values.max()))} at most, 0 now", rank)
            for one in lost[:4]]  # fmt: skip
    names = tuple(one.name for one in lost[:18])
    if _is_unscaled(signals, rank, since):
        text += "; the forward pass is in float16, and no GradScaler scales the loss"
        text += " any more" if signals.series(rank, "scaler/scale") is not None else ""
        why = cause("flushed", "float16 has no numbers below 6e-8 (2^-24): gradients that are smaller are 0 there, and"
                    " with them all that lies before", 0.8, *told)  # fmt: skip
        kind, names = "precision.underflow", (*names, "float16", "grad_scaler")
    else:
        why = cause("silenced", "something between the loss and the model passes nothing on since then: a factor that"
                    " has become 0, a sum in half precision that overflows, a clamp at its limit, units that are all"
                    " dead", 0.7, *told)  # fmt: skip
        kind = "numerics.gradient_vanishing"
    return finding(kind, Severity.WARNING, ranks, f"{words.ranks_text(ranks)}: {text}", why, names=names, step=since,
                   key=f"silenced {model}")  # fmt: skip
