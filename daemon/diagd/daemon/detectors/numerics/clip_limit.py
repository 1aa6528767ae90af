"""Gradients that are clipped to a negative norm, as -1 that was meant to switch clipping off: it turns them round.

torch multiplies by limit / norm, at most 1 (torch.nn.utils.clip_grad_norm_): a negative limit makes every step go
uphill, and 0 leaves nothing.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, curve_of, figure
from diagd.daemon.detectors.training.saying import cause, finding, seen

SAMPLES = 4
NEARLY = 1.1  # of the limit, without its sign: so long is what the optimizer is given


def turned_round(scene: Scene) -> Iterator[Finding]:
    """Ranks whose optimizer is given what such clipping has left."""
    found = {rank: limit for rank in scene.state.signals.ranks("clip_norm/limit") if (limit := _limit(scene, rank)) < 0}
    if not found:
        return
    ranks = tuple(sorted(found))
    limit = found[ranks[0]]
    losses = _curve(scene, ranks[0], "loss")
    text = (
        f"the gradients of {words.ranks_text(ranks)} are clipped to a norm of {figure(limit)}, which turns them round:"
        " each step makes the loss larger"
    )
    if len(losses.values):
        text += f" ({figure(losses.begin())} at first, {figure(float(np.median(losses.values[-SAMPLES:])))} now)"
    told = seen(f"clip_grad_norm_ is called with max_norm {figure(limit)}", ranks[0], source="probe")
    why = cause("clip limit", "clip_grad_norm_ multiplies by the limit over the norm, whatever its sign is: -1 does not"
                " switch it off", 0.95, told, basis=Basis.OBSERVATION)  # fmt: skip
    yield finding("training.loss_divergence", Severity.CRITICAL, ranks, text, why,
                  names=("clip_grad_norm_", "max_norm", "loss", "grad_norm"),
                  step=int(_curve(scene, ranks[0], "clip_norm/limit").steps[0]),
                  key="clip limit")  # fmt: skip


def _limit(scene: Scene, rank: int) -> float:
    """The limit; 0 where it is none of these, or the optimizer is given something else."""
    limits, given = (_curve(scene, rank, name).tail(SAMPLES) for name in ("clip_norm/limit", "grad_norm"))
    if min(len(limits.values), len(given.values)) < SAMPLES or limits.values.max() >= 0:
        return 0.0
    limit = float(limits.values[-1])
    return limit if 0 < float(np.median(given.values)) <= NEARLY * -limit else 0.0


def _curve(scene: Scene, rank: int, signal: str) -> Curve:
    return curve_of(scene.state.signals.series(rank, signal))
