"""How much ranks pass to each other in a step, against what they passed while they had the pace that they have shown.

Messages that have grown are a reason of their own for ranks that are long in operations. Who uses the CPUs is none
against it: ranks that wait leave theirs to whoever else is there, and come back to one later.
"""

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from diagd.daemon.detectors.slowness import is_slowed
from diagd.daemon.state.job import JobState
from diagd.daemon.state.pace import Pace, Rates

GROWN_TIMES = 4.0
LEAST = 1 << 18  # elements in a step: of fewer nobody waits for long
STRETCH_S, STRETCH_STEPS = 0.4, 2


class Grown(NamedTuple):
    """Elements that a rank passes to the others in a step, in collectives."""

    before: float
    now: float

    @property
    def said(self) -> str:
        """In words that follow a comma."""
        return f"{_count(self.now)} elements in a step where it was {_count(self.before)}"


def grown(state: JobState, usual: Mapping[int, Rates]) -> Grown | None:
    """What ranks pass now and did, where that has grown many times on all of which it is known; two at least.

    Args:
        usual: By rank, the pace that it has shown.
    """
    found = [one for rank, rates in usual.items() if (one := _of_rank(state.paces[rank], rates)) is not None]
    if len(found) < 2 or any(one.now < max(LEAST, GROWN_TIMES * one.before) for one in found):
        return None
    return Grown(median(one.before for one in found), median(one.now for one in found))


def _of_rank(pace: Pace, usual: Rates) -> Grown | None:
    """None where its flight recorder does not reach back so far, or tells of no slow steps yet."""
    told = list(pace.sizes.values())
    if not told or min(told)[0] > usual.since_s:
        return None
    until_s = max(told)[0]
    pieces = pace.stretches(usual.until_s, STRETCH_S, STRETCH_STEPS)
    slow = [piece for piece in pieces if piece.until_s <= until_s and is_slowed(piece, usual)]
    if not slow:
        return None
    now = sum(_passed(told, piece) for piece in slow) / sum(piece.steps for piece in slow)
    return Grown(_passed(told, usual) / usual.steps, now)


def _passed(told: list[tuple[float, int]], rates: Rates) -> int:
    return sum(elements for at_s, elements in told if rates.since_s <= at_s < rates.until_s)


def _count(elements: float) -> str:
    return f"{elements / 1e6:.1f} million" if elements >= 1e6 else f"{elements:.0f}"
