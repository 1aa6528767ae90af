"""Which samples of a long run are judged."""

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.artifacts.columns import Floats

FAR = 8.0  # robust deviations: such samples are always fed
FEW = 16  # samples, that are all fed
_SIGMA = 1.4826


def to_feed(values: Floats, every: int) -> NDArray[np.bool_]:
    """Which samples are fed: every so many-th, and all that are far from the rest or not finite."""
    if every <= 1 or len(values) <= FEW:
        return np.ones(len(values), np.bool_)
    kept = np.arange(len(values)) % every == 0
    with np.errstate(all="ignore"), suppress(ValueError):
        finite = values[np.isfinite(values)]
        middle = np.median(finite) if len(finite) else 0.0
        spread = _SIGMA * np.median(np.abs(finite - middle)) if len(finite) else 0.0
        kept |= ~(np.abs(values - middle) <= FAR * max(spread, 1e-12))
    return np.asarray(kept, np.bool_)
