"""A logged total as the sum of its terms, and what kind of term one is."""

from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors.training.curves import Floats
from diagd.daemon.detectors.training.run import Metric
from diagd.daemon.state.metrics_names import canonical

LEAST = 50  # samples
FITS = 0.01  # of the loss's own spread, or of its size: what the fitted sum may be off
# Words in the names of terms that hold something in bounds: these may rise, and need not count while they are small.
BOUNDS = frozenset({
    "kl", "kld", "reg", "regularization", "regularisation", "l1", "l2", "decay", "penalty", "sparsity", "sparse", "tv",
    "smooth", "smoothness", "ortho", "orthogonal", "balance", "aux", "entropy", "z", "norm", "prior", "gp",
})  # fmt: skip


class Terms(NamedTuple):
    """The logged total and its terms over the same samples; the weights with which they add up to it."""

    metrics: list[Metric]
    values: Floats  # samples × terms
    total: Floats
    weights: Floats


def fit(total: Metric, parts: list[Metric]) -> Terms | None:
    """The weights with which the terms add up to the total; None where they do not."""
    steps = total.curve.steps
    same = [m for m in parts if len(m.curve.steps) == len(steps) and (m.curve.steps == steps).all()]
    if len(same) < 2 or len(steps) < LEAST:
        return None
    values, wanted = np.column_stack([m.curve.values for m in same]), total.curve.values
    scale = np.maximum(np.abs(values).max(axis=0), 1e-30)
    plain = np.ones(len(same))
    weights = plain
    if not _is_sum(values, plain, wanted):
        weights = np.linalg.lstsq(values / scale, wanted, rcond=1e-6)[0] / scale
    if not _is_sum(values, weights, wanted) or (weights < 0).any():
        return None
    return Terms(same, values, wanted, weights)


def _is_sum(values: Floats, weights: Floats, wanted: Floats) -> bool:
    off = np.abs(values @ weights - wanted)
    return bool(np.median(off) <= max(1e-4 * float(np.abs(wanted).max()), FITS * float(wanted.std())))


def follows(metric: Metric) -> bool:
    """Whether it is the distance to codes that move to where the encoder is: small as soon as they do."""
    return canonical(metric.name) == "commitment_loss"


def bounds(metric: Metric) -> bool:
    """Whether its name says that it holds something in bounds."""
    return not BOUNDS.isdisjoint(metric.words)
