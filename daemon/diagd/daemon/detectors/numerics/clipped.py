"""Gradients that are clipped while a scaler's factor is still in them: what is left is the limit over the factor."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.numerics.rates import ADAPTIVE
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, curve_of, figure
from diagd.daemon.detectors.training.saying import cause, finding, seen

SAMPLES = 10
FACTOR = 16.0  # of the scaler, at least: with less it makes no difference that could be told
OVER = 10.0  # times the limit that the norms are: they would be without the factor, too, if the limit is a usual one
NEARLY = 1.1


def clipped_scaled(scene: Scene) -> Iterator[Finding]:
    """One finding for all ranks that clip before they unscale."""
    ranks = tuple(rank for rank in scene.state.signals.ranks("scaler/scale") if _is_scaled(_told(scene, rank)))
    if ranks:
        yield _finding(ranks, _told(scene, ranks[0]), _severity(scene, ranks[0]))


def _severity(scene: Scene, rank: int) -> Severity:
    """Steps of an adaptive optimizer do not depend on how large gradients are, but on how much of eps they are."""
    kind = scene.state.signals.fact(rank, "lr/0/optimizer")
    return Severity.INFO if kind is not None and kind[1] in ADAPTIVE else Severity.WARNING


_NAMES = ("clip_norm", "clip_norm/limit", "scaler/scale", "grad_norm")
Told = tuple[Curve, Curve, Curve, Curve]


def _told(scene: Scene, rank: int) -> Told:
    clipped, limit, factor, left = (curve_of(scene.state.signals.series(rank, name)).tail(SAMPLES) for name in _NAMES)
    return clipped, limit, factor, left


def _is_scaled(told: Told) -> bool:
    """Whether it clips norms far above its limit, and the optimizer is given no more than the limit over the factor."""
    if min(len(curve.values) for curve in told) < SAMPLES:
        return False
    clipped, limit, factor, left = (curve.values for curve in told)
    if factor.min() < FACTOR or limit.max() <= 0:
        return False
    return bool((clipped > OVER * limit).all() and np.median(left * factor) <= NEARLY * limit.max())


def _finding(ranks: tuple[int, ...], told: Told, severity: Severity) -> Finding:
    clipped, limit, factor, left = (float(curve.values[-1]) for curve in told)
    text = (
        f"the gradients of {words.ranks_text(ranks)} are clipped to {figure(limit)} while the scaler's factor"
        f" {figure(factor)} is still in them: the optimizer is given a norm of {figure(left)}"
    )
    said = (
        f"norm {figure(clipped)} where it clips, limit {figure(limit)}, scale {figure(factor)}; norm {figure(left)} in"
        " the optimizer's step"
    )
    what = "clip_grad_norm_ comes before the scaler's unscale_, so it clips what is that many times as large"
    evidence = seen(said, ranks[0], told[0].last_step, "probe")
    why = cause("clipped scaled", what, 0.95, evidence, basis=Basis.OBSERVATION)
    names = ("clip_grad_norm_", "GradScaler.unscale_", "grad_norm", "scaler")
    return finding("numerics.gradient_vanishing", severity, ranks, text, why, names=names,
                   step=int(told[0].steps[0]), key="clipped scaled")  # fmt: skip
