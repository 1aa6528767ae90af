"""Steps that the script leaves out as their gradients, or their loss, are not finite: many of them are no training."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.numerics.began import OWN, beginnings
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.state.metrics_names import find
from diagd.daemon.state.signals import Series

WINDOW = 40  # samples, the newest
LEAST, SHARE = 8, 0.2  # of them that are not finite


class Skips(NamedTuple):
    """One rank's samples that are not finite, among others that are."""

    signal: str
    first: int  # step
    bad: int
    of: int

    @property
    def what(self) -> str:
        """What is not finite, in words."""
        return "loss" if "loss" in self.signal else "gradient norm"


def skipped(scene: Scene) -> Iterator[Finding]:
    """Many of the newest steps have gradients that are not finite, and the training goes on."""
    if beginnings(scene, "loss") or beginnings(scene, "grad_norm"):
        return  # it is past that
    found = {rank: one for rank in scene.state.ranks() if (one := skips(scene, rank)) is not None}
    if not found:
        return
    own = {rank: own for rank in found if (own := scene.state.signals.series(rank, OWN)) is not None}
    whose = tuple(sorted(rank for rank, series in own.items() if (series.values > 0).any()))
    ranks = whose if whose and len(own) == len(found) else tuple(sorted(found))
    worst = max((found[rank] for rank in ranks), key=lambda one: one.bad)
    names = _names(scene, ranks)
    which = f" in {', '.join(names[:3])}" if names else ""
    text = (
        f"the {worst.what} of {words.ranks_text(ranks)} is NaN or infinite in {worst.bad} of the last {worst.of} steps,"
        f" first at step {worst.first}{which}; the script goes on, without these steps at best"
    )
    told = [seen(f"{found[r].what} not finite in {found[r].bad} of {found[r].of} steps", r) for r in ranks[:8]]
    if whose and len(whose) < len(found):
        text += "; not so the other ranks' own gradients, before they are added up"
        told += [seen(f"own gradients{which} not finite", rank, source="probe") for rank in whose[:4]]
    made = "a derivative that is not finite where its value is (sqrt or norm at 0, equal eigenvalues)"
    text_of_cause = f"some batches, or {made}, give NaN, and what guards the weights hides how often"
    why = cause("skipped", text_of_cause, 0.7, *told)
    yield finding("numerics.nonfinite", Severity.WARNING, ranks, text, why, names=("grad", "grad_norm", *names),
                  step=worst.first)  # fmt: skip


def skips(scene: Scene, rank: int) -> Skips | None:
    """Whether many of a rank's newest samples are not finite, and no gradient scaler looks for its scale."""
    signals = scene.state.signals
    if signals.series(rank, "scaler/scale") is not None:
        return None
    for signal in ("clip_norm", *find(scene.state, rank, "grad_norm")[:1], *find(scene.state, rank, "loss")[:1]):
        series = signals.series(rank, signal)
        found = _skips(signal, series) if series is not None else None
        if found is not None:
            return found
    return None


def _skips(signal: str, series: Series) -> Skips | None:
    bad = ~np.isfinite(series.values[-WINDOW:])
    if len(bad) < WINDOW or bad.sum() < LEAST or min(half.mean() for half in np.split(bad, 2)) < SHARE:
        return None  # few, or those with which a scaler of the script's own finds its scale
    if bad.all() and signal != "clip_norm":
        return None
    first = int(series.steps[np.flatnonzero(~np.isfinite(series.values))[0]])
    return Skips(signal, first, int(bad.sum()), len(bad))


def _names(scene: Scene, ranks: tuple[int, ...]) -> tuple[str, ...]:
    fact = next((f for rank in ranks if (f := scene.state.signals.fact(rank, OWN)) is not None), None)
    return tuple(fact[1].split(", ")) if fact is not None else ()
