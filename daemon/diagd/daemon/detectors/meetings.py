"""How often ranks meet, in collectives of all of them, by the steps that each has made: are they at one step."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.detectors.replicas import CLOCK, EARLY, RECENT, side_by_side
from diagd.daemon.state.job import JobState

LEAST_STEPS = 4  # of them, to tell bursts
NEAR = 0.25  # of a step's collectives: less is not a step
SAMPLES = 3  # in a row
SPAN = 8  # steps over which the ranks must have been apart


class Ahead(NamedTuple):
    """By how many steps each rank is ahead of the others at the same collective, since which step."""

    steps: dict[int, int]
    since: int
    equal_until: int  # the last step at which they were side by side; 0 none
    per_step: float  # collectives


def in_bursts(state: JobState, ranks: Iterable[int]) -> bool:
    """Whether these ranks meet more often at a few of the early steps than at most: as where they average weights.

    Not known, where too few steps were told: then it is not said.
    """
    series = state.signals.series(min(ranks), CLOCK)
    if series is None:
        return False
    early = series.steps <= EARLY
    steps, counts = series.steps[early], np.diff(series.values[early])
    if len(counts) < LEAST_STEPS or (np.diff(steps) != 1).any():
        return False
    usual = np.median(counts)
    # A first step may make equal what a wrapper or script broadcasts.
    return bool((counts[1:] > usual).sum() >= 1 and (counts[1:] <= usual).mean() > 0.5 and usual < counts[1:].max() / 2)


def ahead(state: JobState, ranks: Sequence[int]) -> Ahead | None:
    """Who has made more or fewer steps than the others by the same collective; None where all are side by side."""
    seen = _seen(state, ranks)
    if seen is None:
        return None
    broken = np.flatnonzero(~seen.apart)
    first = int(broken[-1]) + 1 if len(broken) else 0
    if len(seen.apart) - first < SAMPLES or seen.steps[-1] - seen.steps[first] < SPAN:
        return None
    steps = {rank: round(float(seen.behind[place, -1])) for place, rank in enumerate(ranks)}
    return Ahead(steps, int(seen.steps[first]), int(seen.steps[first - 1]) if first else 0, seen.per_step)


def together_until(state: JobState, ranks: Sequence[int]) -> int | None:
    """The last step of which it is known that the ranks made it side by side; None where nothing tells."""
    seen = _seen(state, ranks)
    if seen is None:
        return None
    broken = np.flatnonzero(~seen.apart)
    return int(seen.steps[broken[-1]]) if len(broken) else 0


def ever_apart(state: JobState, ranks: Sequence[int]) -> bool:
    """Whether they were at different steps by the same collective at any time, as far as that is still known."""
    seen = _seen(state, ranks, recent=None)
    return seen is not None and bool(seen.apart.any())


def meet_as_before(state: JobState, ranks: Iterable[int], equal: int, unequal: int) -> bool:
    """Whether these ranks meet as often in each step after `unequal` as in those before `equal`, as far as is known."""
    for rank in ranks:
        series = state.signals.series(rank, CLOCK)
        if series is None or len(series) < SAMPLES:
            return False
        before, after = (_rate(series.steps[part], series.values[part])
                         for part in (series.steps <= equal, series.steps >= unequal))  # fmt: skip
        if before < 1 or abs(after - before) > NEAR * before:
            return False
    return True


def _rate(steps: NDArray[np.int64], values: NDArray[np.float64]) -> float:
    """Collectives a step, at most steps; 0 where that is not known. Evaluations and a start have more."""
    rates = np.diff(values) / np.diff(steps) if len(steps) >= SAMPLES else np.zeros(0)
    return float(np.median(rates)) if len(rates) else 0.0


class _Seen(NamedTuple):
    steps: NDArray[np.int64]
    behind: NDArray[np.float64]  # by rank and step: has met less often by this step, so has made more of them
    apart: NDArray[np.bool_]
    per_step: float


def _seen(state: JobState, ranks: Sequence[int], recent: int | None = RECENT) -> _Seen | None:
    seen = side_by_side(state, tuple(ranks), CLOCK, recent)
    if seen is None or len(seen.steps) < SAMPLES + 1:
        return None
    per_step = float(np.median(np.diff(seen.values, axis=1) / np.diff(seen.steps)))
    if per_step < 1:
        return None
    middle = np.median(seen.values, axis=0) if len(ranks) > 2 else seen.values.max(axis=0)
    behind = (middle - seen.values) / per_step
    apart: NDArray[np.bool_] = np.any(np.abs(behind) >= 1 - NEAR, axis=0)
    return _Seen(seen.steps, behind, apart, per_step)
