"""Whether what a process holds grows with its steps, how fast, and when that fills what is left.

Judged is the floor, what is held after a step, never the peak within one: longer sequences and evaluation raise the
peak and leave the floor alone. Of each of eight blocks of samples the least counts: what is freed again is no growth.
"""

from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MIB = 1024 * 1024
BLOCKS = 8
MOST = 512  # samples that are judged
RISING = 0.93  # of the slopes between two blocks, 26 of 28
LEVEL = 0.2  # of the median slope: below that, two blocks are as high as each other
STEADY = 0.5  # of the early half's slope in the late half: a cache that fills grows ever more slowly
SLOWING = 0.75  # of the middle third's slope in the last third, and of the first one's in the middle
WARM_STEPS = 10  # lazily allocated optimizer state, caches of libraries, autotuning
LEAST_STEPS = 30
BEGINS = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75)  # of the samples: where growth may have begun
SPREAD = (10, 90)  # percent of the pairwise slopes: the interval of a forecast


@dataclass(frozen=True, slots=True)
class Growth:
    """A line through the floors since growth began; bytes, and training steps."""

    since: int  # the step
    until: int
    slope: float  # a step
    slow: float  # the interval of the slope
    fast: float
    before: float  # held when it began
    now: float
    slowing: bool = False  # by less in each third of it than in the one before

    @property
    def steps(self) -> int:
        """For how many steps it lasts."""
        return self.until - self.since

    @property
    def grown(self) -> float:
        """By how much, on the line."""
        return self.slope * self.steps

    def steps_until(self, room: float, others: float = 0.0) -> tuple[int, int, int]:
        """In how many steps `room` is full: as likely, at the earliest, at the latest.

        `others` is what else grows in the same room, in bytes a step.
        """
        likely, first, last = (max(slope, 1.0) + others for slope in (self.slope, self.fast, self.slow))
        return int(room / likely), int(room / first), int(room / last)


def growth(steps: Ints, values: Floats, least: float = 0.0) -> Growth | None:
    """The longest stretch up to now over which the floor has grown steadily; None where it has not, or by less.

    The slope is Theil's and Sen's (Theil 1950; Sen 1968, J. Am. Stat. Assoc. 63, 1379) through the least values of
    eight blocks. It counts as growth where 93 % of the slopes between two blocks are positive, not counting those of
    blocks that are as high as each other, and the late half is at least half as steep as the early one. All were set on
    simulated runs that do not leak: caches, allocators that take memory in large pieces, evaluation, varying lengths.
    """
    known = np.isfinite(values) & (steps > WARM_STEPS)
    steps, values = steps[known], values[known]
    if len(steps) < BLOCKS or values[-(len(steps) // BLOCKS) :].min() - values.min() < least:
        return None  # which most ranks are through with at once
    steps, values = _thinned(steps, values)
    for part in BEGINS:
        begin = int(part * len(steps))
        if len(steps) - begin < BLOCKS or steps[-1] - steps[begin] < LEAST_STEPS:
            return None
        found = _through(steps[begin:], values[begin:])
        if found is not None:
            return found
    return None


def _thinned(steps: Ints, values: Floats) -> tuple[Ints, Floats]:
    """The least value of each of at most MOST stretches, where it was: what eight blocks see of it stays the same."""
    if len(values) <= MOST:
        return steps, values
    every = -(-len(values) // MOST)
    kept = [begin + int(np.argmin(values[begin : begin + every])) for begin in range(0, len(values), every)]
    return steps[kept], values[kept]


def _through(steps: Ints, values: Floats) -> Growth | None:
    at, floors = block_minima(steps, values)
    pairs = [(b - a, c - d) for (a, d), (b, c) in combinations(zip(at, floors, strict=True), 2) if b > a]
    slopes = np.array([rise / run for run, rise in pairs])
    slope = float(np.median(slopes)) if len(slopes) else 0.0
    if slope <= 0 or float(np.mean(slopes > LEVEL * slope)) < RISING:
        return None
    if not _still(steps, values, slope):
        return None
    half = len(at) // 2
    early, late = _slope(at[: half + 1], floors[: half + 1]), _slope(at[half - 1 :], floors[half - 1 :])
    if late < STEADY * early:
        return None
    slow, fast = (float(q) for q in np.percentile(slopes, SPREAD))
    middle = float(np.median(floors - slope * (at - at[0])))
    # Where the line leaves the level that was held before.
    met = at[0] + max(float(floors[0]) - middle, 0.0) / slope
    since = int(np.clip(met, steps[0], steps[-1]))
    slowing = _is_slowing(at, floors)
    return Growth(
        since, int(steps[-1]), slope, max(slow, 0.0), fast, middle + slope * (since - at[0]), float(values[-1]), slowing
    )


def _is_slowing(at: Floats, floors: Floats) -> bool:
    """Whether it grows ever more slowly, as what is filled by chance does: fewer of its keys are new each time."""
    third = len(at) // 3
    cuts = (0, third, len(at) - third - 1, len(at) - 1)
    slopes = [(floors[b] - floors[a]) / max(at[b] - at[a], 1.0) for a, b in pairwise(cuts)]
    return all(later < SLOWING * earlier for earlier, later in pairwise(slopes))


def _still(steps: Ints, values: Floats, slope: float) -> bool:
    """Whether it goes on: the last sixteenth of the samples is higher than the one before, as the slope has it."""
    part = max(len(steps) // (2 * BLOCKS), 1)
    before, last = values[-2 * part : -part], values[-part:]
    run = float(steps[-part:].mean() - steps[-2 * part : -part].mean())
    return float(last.min() - before.min()) >= STEADY / 2 * slope * run


def block_minima(steps: Ints, values: Floats) -> tuple[Floats, Floats]:
    """The least value of each of eight blocks, and where it was."""
    at, floors = [], []
    for block in np.array_split(np.arange(len(steps)), BLOCKS):
        least = block[int(np.argmin(values[block]))]
        at.append(float(steps[least]))
        floors.append(float(values[least]))
    return np.array(at), np.array(floors)


def _slope(at: Floats, floors: Floats) -> float:
    """Least squares' slope, of a handful of points."""
    centred = at - at.mean()
    spread = float(centred @ centred)
    return float(centred @ (floors - floors.mean())) / spread if spread else 0.0
