"""Which ranks the others lose their time to: at every step or in bursts, and more than by turns."""

from collections.abc import Callable
from itertools import pairwise
from math import sqrt
from statistics import median

from diagd.daemon.detectors.lateness import Lateness
from diagd.daemon.detectors.slowness import Current, is_slowed, own_s

Holds = Callable[[Lateness, int], bool]

COSTS_SHARE = 0.15  # of the time that the others lose to one rank; less than that is an ordinary imbalance
STEADY_SPAN_S = 2.0  # in less, or in fewer meetings, chance can favour one rank
STEADY_MEETINGS = 12
APART = 3.5  # of the delays' sum from what ranks that are late by turns have: a chance of one in some thousands
APART_PART = 0.85  # of the highest that so few meetings can give
HALF_SHARE = 0.08  # in each half of the stretch, to be called steady
LATE_A_STEP_S = 0.005  # shorter is the scheduler's
NEAR = 0.5  # ranks that cost at least so much of what the worst one costs are slow with it
MOSTLY, HARDLY = 0.5, 0.2  # of what steps take longer: the growth of a rank's own work that makes it, and that does not
LEAST_BURSTS = 3
BURST_SPAN_S = 8.0
STILL_GAPS = 3.0  # it still comes in bursts where the last one is no longer ago than so many of the gaps between them


def of_groups(found: list[Lateness], steps: Current, holds: Holds) -> tuple[int, ...]:
    """The culprits of the group in which most is lost, and of those in which nearly as much is."""
    if not (first := _culprits(found[0], steps, holds)):
        return ()
    most_s = max(found[0].cost_s.values())
    near = [late for late in found[1:] if max(late.cost_s.values()) >= NEAR * most_s]
    return tuple(sorted({*first, *(r for late in near for r in _culprits(late, steps, holds))}))


def _culprits(late: Lateness, steps: Current, holds: Holds) -> tuple[int, ...]:
    """The ranks that the others lose their time to; none where ranks are late by turns."""
    worst = max(late.cost_s, key=lambda r: late.cost_s[r])
    if late.share(worst) < COSTS_SHARE or worst not in steps.now or not holds(late, worst):
        return ()
    step_s = steps.now[worst].step_s
    if late.share(worst) * step_s < LATE_A_STEP_S:
        return ()
    slow_ones = tuple(sorted(r for r, cost_s in late.cost_s.items() if cost_s >= NEAR * late.cost_s[worst]))
    if any(r not in steps.now for r in slow_ones):
        return ()
    if 2 * len(slow_ones) > len(late.cost_s) and not _slowed_alone(late, steps, slow_ones):
        return ()  # most of them are late: it is the others that are fast, or they are late by turns
    return slow_ones


def _slowed_alone(late: Lateness, steps: Current, slow_ones: tuple[int, ...]) -> bool:
    """Whether they take longer over work of their own than they did, which makes up what steps take longer, and nobody
    else does."""
    rest = [r for r in late.cost_s if r not in slow_ones]
    if not rest or any(r not in steps.now or r not in steps.usual for r in late.cost_s):
        return False
    longer_s = min(steps.now[r].step_s - steps.usual[r].step_s for r in late.cost_s)
    grown = {r: own_s(steps.now[r]) - own_s(steps.usual[r]) for r in late.cost_s}
    slowed = all(is_slowed(steps.now[r], steps.usual[r]) for r in late.cost_s)
    return (
        slowed
        and min(grown[r] for r in slow_ones) >= MOSTLY * longer_s
        and max(grown[r] for r in rest) <= HARDLY * longer_s
    )


def steady(late: Lateness, rank: int) -> bool:
    """Whether it is late most of the time, and not by chance."""
    steady = all(part / (late.span_s / 2) >= HALF_SHARE for part in late.halves[rank])
    enough = late.span_s >= STEADY_SPAN_S and late.meetings >= STEADY_MEETINGS
    return steady and enough and beyond_chance(late, rank)


def beyond_chance(late: Lateness, rank: int) -> bool:
    """Whether ranks that are late by turns would hardly ever look so."""
    return late.apart[rank] >= min(APART, APART_PART * sqrt(late.meetings))


def bursts(late: Lateness, rank: int) -> bool:
    """Whether it is late again and again, and still is."""
    if len(late.lasts[rank]) < LEAST_BURSTS or late.span_s < BURST_SPAN_S:
        return False
    usual_s = median(delay.by_s for delay in late.lasts[rank])
    if late.rivals(rank, usual_s / 2) and not beyond_chance(late, rank):
        return False
    return still_comes(late, rank)


def still_comes(late: Lateness, rank: int) -> bool:
    """Whether it was late no longer ago than goes with how often it is; else it has recovered."""
    times = [delay.at_s for delay in late.lasts[rank]]
    gap_s = median(after - before for before, after in pairwise(times))
    return late.until_s - times[-1] <= STILL_GAPS * gap_s
