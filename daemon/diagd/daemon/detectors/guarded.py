"""A script that leaves steps out by itself, and the gradient scaler's update with them: its scale only ever grows.

With float16 a scaler raises its scale until gradients overflow, and lowers it by the update of such a step (torch's
GradScaler: twofold up each growth_interval steps, by half at each overflow). Where that update is left out it stays.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import curve_of, figure
from diagd.daemon.state.job import JobState

MOST = 0.5  # of a step's backward passes are for nothing, at each of the last
LASTS, LOST = 3, 16  # such steps; passes in all
GROWN = 4  # times the scale that it began with


def guarded(scene: Scene) -> Iterator[Finding]:
    """One finding for all ranks that show it."""
    found = {rank: seen for rank in scene.state.signals.ranks("scaler/scale") if (seen := _lost(scene.state, rank))}
    if not found:
        return
    ranks = tuple(sorted(found))
    step, lost = found[ranks[0]]
    scale = curve_of(scene.state.signals.series(ranks[0], "scaler/scale")).values
    first, now = figure(float(scale[0])), figure(float(scale[-1]))
    text = (
        f"most backward passes of {words.ranks_text(ranks)} are for nothing since step {step} ({lost} so far): the"
        f" script leaves their steps out, while the gradient scaler's scale has gone from {first} to {now} and never"
        " come down"
    )
    why = "scaled gradients overflow in float16, and the update by which the scaler would lower its scale is left out"
    told = (
        Evidence(f"{lost} backward passes whose gradients were cleared unused", "probe", ranks[0], step),
        Evidence(f"scale {first} at first, {now} now, no step skipped by the scaler itself", "signals", ranks[0]),
    )
    yield Finding(
        "precision.overflow", Severity.WARNING, ranks, words.shortened(text + "."),
        (Cause("guarded", why, 0.7, Basis.INFERENCE, told),), names=("grad_scaler", "scale", "grad", "loss"),
        step=step, sure=True, goes_on=True, key="guarded",
    )  # fmt: skip


def _lost(state: JobState, rank: int) -> tuple[int, int] | None:
    """Since which step, and how many passes were for nothing; None where it is not so."""
    scale, skipped = (curve_of(state.signals.series(rank, f"scaler/{what}")) for what in ("scale", "skipped"))
    parts, passes = (curve_of(state.signals.series(rank, f"gradients/{what}")) for what in ("discarded", "passes"))
    values = scale.values
    if len(values) < 2 or values[-1] < GROWN * values[0] or (np.diff(values) < 0).any() or skipped.values.any():
        return None
    if len(parts.values) < LASTS or (parts.values[-LASTS:] < MOST).any():
        return None
    places = np.searchsorted(passes.steps, parts.steps, side="right") - 1
    counts = np.where(places >= 0, passes.values[np.maximum(places, 0)] if len(passes.values) else 0.0, 0.0)
    lost = round(float((counts * parts.values).sum()))
    return (int(parts.steps[0]), lost) if lost >= LOST else None
