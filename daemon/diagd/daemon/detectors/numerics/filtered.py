"""A loss that is not finite, and `nan_to_num` in it, which puts a number there: it looks well, and trains nothing."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, curve_of
from diagd.daemon.detectors.training.saying import cause, finding, seen

FILTERED = "loss/filtered"
LEAST = 8  # samples, the newest of which say how it is now
MOST, SOME = 0.5, 0.02  # of what the filter is given; a few empty terms of a batch are what it is for


def filtered(scene: Scene) -> Iterator[Finding]:
    """One finding for all ranks whose filter has something to keep away in each step of late."""
    found = {rank: curve for rank in scene.state.signals.ranks(FILTERED)
             if _lasts(curve := curve_of(scene.state.signals.series(rank, FILTERED)))}  # fmt: skip
    if not found:
        return
    ranks = tuple(sorted(found))
    since = {rank: _since(curve) for rank, curve in found.items()}
    step = min(since.values())
    part = max(float(np.median(curve.values[-LEAST:])) for curve in found.values())
    much = "" if part > 1 - SOME else f" in {100 * part:.0f} % of what it is computed from"
    text = (
        f"the loss of {words.ranks_text(ranks)} is NaN or infinite{much} in each step since step {step}, and nan_to_num"
        " puts a number in its place: it looks finite, and that part of it trains nothing"
    )
    told = [seen(f"of what nan_to_num is given behind the last layer, {100 * found[r].values[-1]:.0f} % is not finite,"
                 f" in each of the steps that were looked at since step {since[r]}", r, since[r], "probe")
            for r in ranks[:8]]  # fmt: skip
    why = cause("filtered", "nan_to_num hides values that are not finite, whose gradient it makes zero", 0.9, *told,
                basis=Basis.OBSERVATION)  # fmt: skip
    severity = Severity.WARNING if part >= MOST else Severity.INFO
    yield finding("numerics.nonfinite", severity, ranks, text, why, names=("loss", "nan_to_num"), step=step,
                  key="filtered")  # fmt: skip


def _lasts(curve: Curve) -> bool:
    lately = curve.values[-LEAST:]
    return len(lately) == LEAST and bool((lately > SOME).all())


def _since(curve: Curve) -> int:
    before = np.flatnonzero(curve.values <= SOME)
    return int(curve.steps[before[-1] + 1 if len(before) else 0])
