"""A slow link: the edge that the slow pairs of ranks have in common, where other pairs are quick with as much.

Both ranks of a pair were there while the time passed, so neither kept the other waiting. Pairs of one host are compared
with pairs of one host, and pairs of two hosts with such: between hosts all takes longer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from diagd.daemon.detectors import words
from diagd.daemon.detectors.crossings import MESSAGE, Crossing, crossings
from diagd.daemon.detectors.finding import Evidence
from diagd.daemon.detectors.slowness import HOST_PART, Current
from diagd.daemon.state.job import JobState
from diagd.daemon.state.pace import Rates

LONG_S = 0.005  # less than that is the scheduler's
RATIO = 4.0  # to the median of the others
COSTS_SHARE = 0.15  # of the time, that passes in it

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Where it is."""

    ranks: tuple[int, ...]  # on both ends; of an end that is slow towards all, its own
    where: str
    not_known: str  # what of it is not known; empty where all is
    slow: tuple[Crossing, ...]
    quick_s: float  # what the others take
    quick: int  # how many pairs they are

    def evidence(self) -> tuple[Evidence, ...]:
        """The slowest, and what it was compared with."""
        said = tuple(
            Evidence(
                f"{1000 * c.seconds:.0f} ms for a {c.label} with rank {c.ranks[1]} once both are there"
                f" ({c.count} seen)", "probe", c.ranks[0],
            )
            for c in sorted(self.slow, key=lambda c: -c.seconds)[:3]
        )  # fmt: skip
        return (*said, Evidence(f"{1000 * self.quick_s:.1f} ms between {self.quick} other pairs", "probe"))


def slow_link(state: JobState, steps: Current) -> SlowLink | None:
    """The link that costs time; None where no pair is slow, or the slow ones have no edge in common."""
    if not all(state.detail(r).backend.startswith("gloo") for r in steps.now):
        return None  # on a device the threads are not held by what they wait for
    if not any(_communicates(rates) for rates in steps.now.values()):
        return None
    measured = crossings(state)
    slow = [c for c in measured if _is_slow(state, c, measured)]
    if not slow or any(_starved(steps, r, c) for c in slow for r in c.ranks):
        return None
    pairs = {c.ranks for c in slow}
    quick = {c.ranks for c in measured} - pairs
    edge = _edge(state, pairs, quick)
    if edge is None:
        return None
    ranks, where, not_known = edge
    others = [c.seconds for s in slow for c in _likes(state, s, measured) if c.ranks in quick]
    return SlowLink(ranks, where, not_known, tuple(slow), median(others), len(quick)) if others else None


def _communicates(rates: Rates) -> bool:
    """Whether operations take so much of its time that a link could cost what is worth a word."""
    held_s = sum(s for (name, _), s in rates.held.items() if name)
    return max(held_s, rates.phases.get("collective", 0.0)) >= COSTS_SHARE * rates.step_s


def _likes(state: JobState, crossing: Crossing, measured: Iterable[Crossing]) -> list[Crossing]:
    """Other pairs' crossings that carry as much at least, and as far."""
    (name, numel, dtype), far = crossing.kind, _is_far(state, crossing.ranks)
    return [
        c for c in measured
        if c.ranks != crossing.ranks and c.kind[0] == name and c.kind[1] >= numel and c.kind[2] == dtype
        and _is_far(state, c.ranks) == far
    ]  # fmt: skip


def _is_slow(state: JobState, crossing: Crossing, measured: Iterable[Crossing]) -> bool:
    if crossing.seconds < LONG_S or crossing.share < COSTS_SHARE:
        return False
    # Where several share an edge they are no measure for each other: against the quicker half.
    others = sorted(c.seconds for c in _likes(state, crossing, measured))
    return bool(others) and crossing.seconds >= RATIO * median(others[: (len(others) + 1) // 2])


def _starved(steps: Current, rank: int, crossing: Crossing) -> bool:
    """Whether the rank waits so much for a CPU that this may be what takes so long."""
    rates = steps.now.get(rank)
    return rates is None or rates.host.get("run_delay_s", 0.0) >= HOST_PART * crossing.share * rates.step_s


def _edge(state: JobState, slow: set[Pair], quick: set[Pair]) -> tuple[tuple[int, ...], str, str] | None:
    """Ranks, words, and what is not known, of what all slow pairs share and no quick one does."""
    hosts = {frozenset(_host(state, r) for r in pair) for pair in slow}
    if len(slow) == 1:
        return _one_pair(state, next(iter(slow)), quick)
    if len(hosts) == 1 and len(between := next(iter(hosts))) == 2:
        if any({_host(state, r) for r in pair} == between for pair in quick):
            return None
        ranks = tuple(sorted({r for pair in slow for r in pair}))
        return ranks, f"between the hosts {' and '.join(sorted(between))}", ""
    if shared := set.intersection(*map(set, slow)):
        rank = shared.pop()
        return None if any(rank in pair for pair in quick) else ((rank,), f"of rank {rank} to all others", "")
    if len(common := frozenset.intersection(*hosts)) == 1 and all(len(both) == 2 for both in hosts):
        (host,) = common
        far = [pair for pair in quick if _is_far(state, pair)]
        if any(host in (_host(state, r) for r in pair) for pair in far):
            return None
        return tuple(sorted({r for pair in slow for r in pair if _host(state, r) == host})), f"of the host {host}", ""
    return None


def _one_pair(state: JobState, pair: Pair, quick: set[Pair]) -> tuple[tuple[int, ...], str, str] | None:
    alone = [r for r in pair if not any(r in other for other in quick)]
    if alone and not _is_far(state, pair):
        return None  # within a host it may as well be the rank that is slow
    not_known = f"{words.ranks_text(alone)} {words.verb(alone, 'has', 'have')} no other pair that was seen: whether it"
    return pair, f"between rank {pair[0]} and rank {pair[1]}", f"{not_known} is the link or that end" if alone else ""


def _host(state: JobState, rank: int) -> str:
    detail = state.detail(rank)
    return detail.node or detail.host


def _is_far(state: JobState, pair: Pair) -> bool:
    return _host(state, pair[0]) != _host(state, pair[1])


def what(link: SlowLink) -> str:
    """What takes so long there."""
    return "messages" if all(c.kind[0] == MESSAGE for c in link.slow) else "operations of two"
