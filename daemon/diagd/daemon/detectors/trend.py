"""Whether what a rank loses at each step grows, as caches, lists and histories that nobody trims do."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import median
from typing import NamedTuple

from diagd.daemon.detectors.slowness import own_s
from diagd.daemon.state.job import JobState

PIECE_S = 1.5  # one point
PIECE_STEPS = 5
LEAST_POINTS = 8
MOST_POINTS = 64
MOST_OTHERS = 8
BEGUN = 0.2  # of what is lost now: from when on it loses more, it is slow
GREW = 1.5  # from the line's begin to its end; less is no news
SURE_Z = 2.58  # of Mann and Kendall's test, one in two hundred by chance


class Point(NamedTuple):
    """What a step costs more than with others, at a moment; seconds."""

    at_s: float
    more_s: float


@dataclass(frozen=True, slots=True)
class Growth:
    """A line through them: seconds a step at its begin and its end, and for how long it goes."""

    before_s: float
    now_s: float
    span_s: float


def growth(state: JobState, rank: int, others: Sequence[int]) -> Growth | None:
    """How a rank's own work has grown over that of the others since it is slow; None where it has not, or not surely.

    The line is Theil's and Sen's (Theil 1950; Sen 1968, J. Am. Stat. Assoc. 63, 1379): the median of the slopes
    between any two points, which a quarter of wild points does not move. Whether there is a trend at all is told by
    the test of Mann (1945, Econometrica 13, 245) and Kendall (1948). Looks no further back than samples are kept, which
    is two minutes.
    """
    points = _since_slow(_points(state, rank, others))[-MOST_POINTS:]
    if len(points) < LEAST_POINTS or mann_kendall_z(points) < SURE_Z:
        return None
    slope = theil_sen(points)
    first_s, last_s = points[0].at_s, points[-1].at_s
    middle = median(p.more_s - slope * (p.at_s - first_s) for p in points)
    before_s, now_s = max(middle, 0.0), middle + slope * (last_s - first_s)
    return Growth(before_s, now_s, last_s - first_s) if now_s >= GREW * before_s else None


def theil_sen(points: Sequence[Point]) -> float:
    """The median slope, seconds a step for each second; at least two points at different times."""
    return median((b.more_s - a.more_s) / (b.at_s - a.at_s) for a, b in combinations(points, 2) if b.at_s > a.at_s)


def mann_kendall_z(points: Sequence[Point]) -> float:
    """By how many standard deviations more pairs rise than fall than chance would have it."""
    n = len(points)
    s = sum((b.more_s > a.more_s) - (b.more_s < a.more_s) for a, b in combinations(points, 2))
    return float((s - (s > 0) + (s < 0)) / sqrt(n * (n - 1) * (2 * n + 5) / 18)) if n > 1 else 0.0


def _points(state: JobState, rank: int, others: Sequence[int]) -> list[Point]:
    mine = state.paces[rank].stretches(0.0, PIECE_S, PIECE_STEPS)
    theirs = [state.paces[r].stretches(0.0, PIECE_S, PIECE_STEPS) for r in others[:MOST_OTHERS]]
    found = []
    for piece in mine:
        middle_s = (piece.since_s + piece.until_s) / 2
        at_once = [own_s(p) for pieces in theirs for p in pieces if p.since_s <= middle_s < p.until_s]
        if at_once:
            found.append(Point(middle_s, own_s(piece) - median(at_once)))
    return found


def _since_slow(points: Sequence[Point]) -> list[Point]:
    """The points since it last lost next to nothing."""
    if len(points) < LEAST_POINTS:
        return []
    now_s = median(p.more_s for p in points[-3:])
    quiet = [place for place, p in enumerate(points) if p.more_s < BEGUN * now_s]
    return list(points[quiet[-1] + 1 :]) if quiet else list(points)
