"""Numbers from measurements: medians, shares and intervals."""

import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

RESAMPLES = 2000
LEVEL = 0.95


class Interval(NamedTuple):
    """An estimate and the interval in which it lies with 95 %."""

    value: float
    low: float
    high: float

    def shown(self, digits: int = 4) -> str:
        """As text, the interval in brackets."""
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


class Pair(NamedTuple):
    """What was measured with and, right beside it, without."""

    on: Sequence[float]
    off: Sequence[float]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def bootstrap(items: Sequence[Pair], estimate: Callable[[Sequence[Pair]], float], seed: int = 0) -> Interval:
    """The estimate over `items`, and its interval by drawing as many of them anew, again and again."""
    chance = random.Random(seed)
    drawn = sorted(estimate(chance.choices(items, k=len(items))) for _ in range(RESAMPLES))
    edge = (1 - LEVEL) / 2
    return Interval(estimate(items), drawn[int(edge * RESAMPLES)], drawn[int((1 - edge) * RESAMPLES) - 1])


def ratio_of_medians(pairs: Sequence[Pair]) -> float:
    """All with over all without."""
    on = [value for pair in pairs for value in pair.on]
    off = [value for pair in pairs for value in pair.off]
    return statistics.median(on) / statistics.median(off)


def median_of_ratios(pairs: Sequence[Pair]) -> float:
    """Of each pair's own ratio: what changes slowly on the machine falls out."""
    return statistics.median(statistics.median(pair.on) / statistics.median(pair.off) for pair in pairs)


def median_difference(pairs: Sequence[Pair]) -> float:
    """Of each pair's own difference of medians."""
    return statistics.median(statistics.median(pair.on) - statistics.median(pair.off) for pair in pairs)


def mean_difference(pairs: Sequence[Pair]) -> float:
    """Of each pair's own difference of means, their mean: what is done rarely counts as well."""
    return statistics.fmean(statistics.fmean(pair.on) - statistics.fmean(pair.off) for pair in pairs)
