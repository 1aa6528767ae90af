"""Robust statistics of a scalar over the steps: nothing here is moved by a few values far off.

Losses differ by orders of magnitude within a run, so they are compared on a scale that is logarithmic where all values
are positive, and asinh otherwise (logarithmic in the large, linear around 0).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.state.signals import Series

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SIGMA = 1.4826  # of a normal distribution, over its median absolute deviation
FLOOR = 0.02  # least spread on the logarithmic scale: 2 % (a loss averaged over large batches has hardly any noise)
SHORT = 1 << 42  # a float64 that is a multiple of this in its last bits came from a format of 10 bits or fewer
DECIMALS = 6  # values with no more than that were rounded for people
GRAINS = 20.0  # of their last decimal: below so many, a ratio of two values is one of rounding errors
START = 10  # samples that show where a run begins


class Curve(NamedTuple):
    """The finite samples of a series, oldest first."""

    steps: Ints
    values: Floats

    @property
    def last_step(self) -> int:
        """The newest sample's step."""
        return int(self.steps[-1])

    def tail(self, count: int) -> "Curve":
        """The newest samples."""
        return Curve(self.steps[-count:], self.values[-count:])

    def until(self, step: int) -> "Curve":
        """The samples up to a step."""
        return Curve(self.steps[self.steps <= step], self.values[self.steps <= step])

    def at(self, steps: Ints) -> "Curve":
        """The samples of these steps."""
        kept = np.isin(self.steps, steps)
        return Curve(self.steps[kept], self.values[kept])

    def begin(self) -> float:
        """The level that the run began at."""
        return float(np.median(self.values[:START]))


def curve_of(series: Series | None) -> Curve:
    """A series without its NaN and infinities, which another rule speaks of; empty where there is none."""
    if series is None:
        return Curve(np.zeros(0, np.int64), np.zeros(0))
    finite = np.isfinite(series.values)
    return Curve(series.steps[finite], series.values[finite])


def coarse(values: Floats) -> float:
    """The size below which values say little, as all were rounded to so many decimals; 0 where they were not.

    Loggers round what they write: a loss of 0.00012 is 0.0001 in transformers' `trainer_state.json`.
    """
    if not (np.ascontiguousarray(values).view(np.int64) % SHORT).any() or not _have_decimals(values, DECIMALS):
        return 0.0
    return GRAINS * 10.0 ** -next(n for n in range(DECIMALS + 1) if _have_decimals(values, n))


def _have_decimals(values: Floats, decimals: int) -> bool:
    scaled = values * 10.0**decimals
    return bool((np.abs(scaled - np.round(scaled)) <= 1e-9 * np.maximum(np.abs(scaled), 1.0)).all())


def logarithmic(values: Floats, least: float = 0.0) -> Floats:
    """The values on a scale on which equal ratios are equal distances, but below `least`."""
    if len(values) and (values.min() > 0 or (least and values.min() == 0)):
        return np.log(values + least)
    scale = float(np.median(np.abs(values))) if len(values) else 1.0
    return np.arcsinh(values / max(scale, least, 1e-12))


def spread(values: Floats) -> float:
    """The standard deviation as the median absolute deviation has it."""
    return SIGMA * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def noise(values: Floats) -> float:
    """The standard deviation around a slowly moving level, from differences of neighbours."""
    return SIGMA * float(np.median(np.abs(np.diff(values)))) / 2**0.5 if len(values) > 1 else 0.0


def bends(values: Floats) -> float:
    """The standard deviation around a line through neighbours: of few values that go down and up again."""
    return SIGMA * float(np.median(np.abs(np.diff(values, n=2)))) / 6**0.5 if len(values) > 2 else 0.0


def straightened(values: Floats) -> Floats:
    """The values without a fall over the whole of them, which is progress and no noise."""
    half = len(values) // 2
    slope = (float(np.median(values[half:])) - float(np.median(values[:half]))) / max(half, 1)
    return values - min(slope, 0.0) * np.arange(len(values))


def rolling_median(values: Floats, width: int) -> Floats:
    """The median of each `width` neighbours, from the first that has so many; empty where there are fewer."""
    if len(values) < width:
        return np.zeros(0)
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1))


def lasting(holds: NDArray[np.bool_]) -> int:
    """How many of the newest samples in a row hold."""
    other = np.flatnonzero(~holds)
    return len(holds) - 1 - int(other[-1]) if len(other) else len(holds)


def figure(value: float) -> str:
    """A number as people write it: "0.0123", "920", "1.2e+05"."""
    return f"{value:.3g}"
