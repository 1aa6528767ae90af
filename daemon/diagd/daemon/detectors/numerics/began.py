"""Since when values are NaN or infinite, and whose own pass had them first: by the step, then by the place in it."""

from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.signals import Series

OWN = "gradients/own_nonfinite"  # of a rank's own pass, before the ranks' gradients are added up
LASTS = 2  # samples in a row, newest included: one alone is skipped by many scripts, and by gradient scalers


class Own(NamedTuple):
    """The first backward pass whose gradients were not finite before they were added up."""

    step: int
    ranks: tuple[int, ...]  # whose gradients they were
    finite: tuple[int, ...]  # whose were finite in that pass; none where that is not known of all others


def beginnings(scene: Scene, name: str) -> dict[int, int]:
    """By rank, the step at which the newest stretch of non-finite samples began."""
    found = {}
    for rank in scene.state.signals.ranks(name):
        series = scene.state.signals.series(rank, name)
        step = beginning(series) if series is not None else None
        if step is not None:
            found[rank] = step
    return found


def beginning(series: Series) -> int | None:
    """The first step of a stretch of non-finite samples that lasts to the end; None where there is none."""
    bad = ~np.isfinite(series.values)
    if len(bad) < LASTS or not bad[-LASTS:].all():
        return None
    good = np.flatnonzero(~bad)
    return int(series.steps[good[-1] + 1 if len(good) else 0])


def last_finite(scene: Scene, before: int) -> int:
    """The newest step before that one at which some rank's loss was finite; 0 where there is none."""
    newest = 0
    for rank in scene.state.signals.ranks("loss"):
        series = scene.state.signals.series(rank, "loss")
        if series is not None:
            good = series.steps[np.isfinite(series.values) & (series.steps < before)]
            newest = max(newest, int(good[-1]) if len(good) else 0)
    return newest


def first_own(scene: Scene, ranks: tuple[int, ...], since: int, until: int) -> Own | None:
    """The first such pass from one step to another; None where none is known.

    Args:
        scene: The job.
        ranks: That are asked, as far as they have told.
        since: The last step with a finite loss: gradients from before it were not applied.
        until: The last step whose gradients may be the first.
    """
    told = {r: s for r in ranks if (s := scene.state.signals.series(r, OWN)) is not None and len(s)}
    bad = {}
    for rank, one in told.items():
        steps = one.steps[(one.values > 0) & (one.steps >= since) & (one.steps <= until)]
        if len(steps):
            bad[rank] = int(steps[0])
    if not bad:
        return None
    step = min(bad.values())
    first = tuple(sorted(rank for rank, at in bad.items() if at == step))
    others = tuple(rank for rank in ranks if rank not in first)
    known = all(rank in told and (told[rank].steps[told[rank].values == 0] == step).any() for rank in others)
    return Own(step, first, others if known else ())
