"""Gradient scalers that multiply the loss by another factor on each rank, of ranks that average their gradients.

What is averaged is then a sum of gradients in different units, and each rank divides it by a factor of its own: the
gradients that its optimizer is given are the others' times a constant.
"""

from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import GOES_ON, Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.replicas import side_by_side
from diagd.daemon.detectors.training.curves import figure
from diagd.daemon.state.job import JobState
from diagd.daemon.steps import since_text

TIMES = 2  # told steps at which they differ, the newest among them
SAME = 1e-6  # relative: scales are powers of two, told as float32
EXPLAINS = ("divergence.parameter", "divergence.gradient", "divergence.optimizer")


class Scales(NamedTuple):
    """The factors by rank at `since`, the first step of which they were told apart."""

    by_rank: dict[int, float]
    since: int
    may_since: int  # the first step in which they may have been


def scales_apart(state: JobState, ranks: tuple[int, ...]) -> Scales | None:
    """None where they are equal, not known, or differ because some ranks have skipped a step that others have made."""
    seen = side_by_side(state, ranks, "scaler/scale", recent=None)
    if seen is None or len(seen.steps) < TIMES:
        return None
    low, high = seen.values.min(axis=0), seen.values.max(axis=0)
    differ = high - low > SAME * np.abs(high)
    if not differ[-TIMES:].all() or not np.isfinite(seen.values).all():
        return None
    equal = np.flatnonzero(~differ)
    at = int(equal[-1]) + 1 if len(equal) else 0
    since, may_since = int(seen.steps[at]), int(seen.steps[at - 1]) + 1 if at else 1
    if len({_skipped(state, rank, since) for rank in ranks}) > 1:
        return None
    return Scales(dict(zip(ranks, seen.values[:, at].tolist(), strict=True)), since, may_since)


def _skipped(state: JobState, rank: int, until: int) -> int:
    """How many steps its scaler has left out; -1 not known."""
    series = state.signals.series(rank, "scaler/skipped")
    return int(series.values[series.steps <= until].sum()) if series is not None else -1


def scales_finding(found: Scales) -> Finding:
    """What to say of them."""
    classes: dict[float, list[int]] = {}
    for rank, scale in found.by_rank.items():
        classes.setdefault(scale, []).append(rank)
    ordered = sorted(classes.items(), key=lambda one: (-len(one[1]), one[1]))
    odd, _ = minority([ranks for _, ranks in ordered])
    said = ", ".join(f"{scale:.9g} on {words.ranks_text(ranks)}" for scale, ranks in ordered[:4])
    times = max(classes) / min(classes) if min(classes) > 0 else 0.0
    text = (
        f"the gradient scalers (GradScaler) of {words.ranks_text(found.by_rank)} multiply the loss by different factors"
        f" ({said}), {since_text(found.may_since, found.since)}: their gradients are added in different units, and each"
        f" rank divides the sum by its own factor{GOES_ON}, with ranks whose steps differ"
        + (f" by up to {figure(times)} times" if times else "")
    )
    why = "the scalers were made with other settings (init_scale), have loaded another state, or were updated otherwise"
    told = tuple(Evidence(f"loss scale {scale:.9g}", "signals", rank, found.since)
                 for rank, scale in list(found.by_rank.items())[:8])  # fmt: skip
    return Finding(
        "divergence.gradient", Severity.CRITICAL, odd, words.shortened(text),
        (Cause("scales", why, 0.9, Basis.OBSERVATION, told),), names=("grad_scaler", "scale"), step=found.since,
        sure=True, goes_on=True, key="scales", explains=EXPLAINS,
    )  # fmt: skip
