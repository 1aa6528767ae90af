"""Who comes late to the operations that ranks meet in: the time that the others lose to each rank.

Waiting makes the steps of all ranks equally long, so a slow rank does not show in how long its steps take. It shows in
when it arrives: the others are there before it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

from diagd.daemon.detectors.pauses import meant_s
from diagd.daemon.state.job import JobState
from diagd.daemon.state.pace import PAUSES, Pace

FRESH_S = 8.0  # older arrivals say nothing of now,
FRESH_PART = 0.25  # but for so much of a longer stretch: of steps that take seconds
LEAST_MEETINGS = 6
LEAST_STEPS = 12
OFTEN = 0.5  # of the steps; of what a pause takes of each
ENOUGH_RANKS = 16  # of a large group
FELT_S = 0.002  # a spread below this is the clocks' and the scheduler's

STRAY = 256  # what one look adds of one source: beyond so many older ones in a row there is nothing newer

Place = tuple[str, int]  # group, place in its order


@dataclass(frozen=True, slots=True)
class Meeting:
    """One operation that all its ranks entered: by how much each came after the first."""

    first_s: float  # when the first rank came
    at_s: float  # when the last one did
    late_s: dict[int, float]  # by rank
    source: str  # of the times: probe or flight recorder


class Delay(NamedTuple):
    """One time that a rank was the last to come."""

    at_s: float
    by_s: float  # what it added to how late it was before


@dataclass(frozen=True, slots=True)
class Lateness:
    """A stretch of meetings."""

    source: str  # of most of them
    until_s: float
    span_s: float
    meetings: int
    cost_s: dict[int, float]  # time that each rank has made the others wait, in all
    halves: dict[int, tuple[float, float]]  # the same by half of the stretch
    lasts: dict[int, tuple[Delay, ...]]  # when the rank was the last to come, and felt to be
    apart: dict[int, float]  # how far its delays stand from what ranks that are late by turns have
    excused_s: dict[int, float]  # of its delays, in all

    def share(self, rank: int) -> float:
        """The part of the time that the others lose to this rank."""
        return self.cost_s.get(rank, 0.0) / self.span_s

    def rivals(self, rank: int, least_s: float) -> int:
        """How often another came last by so much."""
        return sum(one.by_s >= least_s for r, delays in self.lasts.items() if r != rank for one in delays)


def lateness(state: JobState, since_s: float) -> list[Lateness]:
    """The lateness of the ranks in each group of which enough is known since then; where most is lost first."""
    by_group: dict[str, list[Meeting]] = defaultdict(list)
    for (group, _), meeting in _meetings(state, since_s).items():
        by_group[group].append(meeting)
    paused_s = [{r: pace.spent_s((p,), since_s) for r, pace in state.paces.items()} for p in PAUSES]
    held_s = {r: pace.held_s(since_s) for r, pace in state.paces.items()}
    found = []
    for meetings in by_group.values():
        members = meetings[0].late_s
        # Who was held in sends and receives for longer than the others has come late because of that.
        least_s = min(held_s[r] for r in members)
        meant = [meant_s({r: spent_s[r] for r in members}) for spent_s in paused_s]
        alone_s = {r: sum(one[r] for one in meant) for r in members}
        more_s = {r: held_s[r] - least_s for r in members}
        if (made := _summed(state, meetings, alone_s, more_s)) is not None:
            found.append(made)
    return sorted(found, key=lambda made: (-max(made.cost_s.values()), -made.meetings))


def _meetings(state: JobState, since_s: float) -> dict[Place, Meeting]:
    """Operations that every member was seen to enter, by one source: probe and recorder stamp differently."""
    wanted = _seen_members(state)
    times: dict[tuple[str, int, str], dict[int, float]] = defaultdict(dict)
    for rank in sorted({r for ranks in wanted.values() for r in ranks}):
        for key, entered_s in _newest(state.paces[rank], since_s):
            if key[0] in wanted:
                times[key][rank] = entered_s
    found: dict[Place, Meeting] = {}
    for (group, seq, source), entered in times.items():
        complete = len(entered) == len(wanted[group])
        if complete and (source == "probe" or (group, seq) not in found):
            first = min(entered.values())
            found[group, seq] = Meeting(
                first, max(entered.values()), {r: t - first for r, t in entered.items()}, source
            )
    return found


def _newest(pace: Pace, since_s: float) -> Iterator[tuple[tuple[str, int, str], float]]:
    """What a rank has come to since then, newest first; each look adds its own in order, source by source."""
    older = 0
    for key, entered_s in reversed(pace.arrivals.items()):
        if entered_s >= since_s:
            older = 0
            yield key, entered_s
        elif (older := older + 1) > STRAY:
            return


def _seen_members(state: JobState) -> dict[str, list[int]]:
    """The members of each group whose arrivals are known: all, or enough of a large group to tell who is late."""
    fresh = {r for r, pace in state.paces.items() if state.now_s - pace.arrivals_read_s <= FRESH_S}
    groups = {g.name: g.ranks for detail in state.details.values() for g in detail.groups}
    seen = {name: [r for r in ranks if r in fresh] for name, ranks in groups.items()}
    return {name: ranks for name, ranks in seen.items() if len(ranks) >= max(2, min(len(groups[name]), ENOUGH_RANKS))}


def _summed(
    state: JobState, meetings: list[Meeting], alone_s: dict[int, float], held_s: dict[int, float]
) -> Lateness | None:  # fmt: skip
    meetings.sort(key=lambda m: m.at_s)
    began, ended = meetings[0].at_s, meetings[-1].at_s
    if len(meetings) < LEAST_MEETINGS or state.now_s - ended > max(FRESH_S, FRESH_PART * (ended - began)):
        return None
    halves: dict[int, list[float]] = {r: [0.0, 0.0] for r in meetings[0].late_s}
    lasts: dict[int, list[Delay]] = {r: [] for r in halves}
    added: dict[int, list[float]] = {r: [] for r in halves}
    for previous, meeting in pairwise(meetings):
        half = meeting.at_s > (began + ended) / 2
        last = max(meeting.late_s, key=lambda r: meeting.late_s[r])
        # Issued before the last rank had come to the one before, as DDP's buckets are, it carries the same delay: only
        # what is added counts. Else the one before has brought the ranks together, and all of it is new.
        carried = previous.late_s if meeting.first_s < previous.at_s else {}
        for rank, late_s in meeting.late_s.items():
            added_s = late_s - carried.get(rank, 0.0)
            added[rank].append(added_s)
            halves[rank][half] += added_s if added_s > FELT_S else 0.0
            if rank == last and added_s > FELT_S:
                lasts[rank].append(Delay(meeting.at_s, added_s))
    span_s = max(ended - began, 1e-6)
    steps = {r: state.paces[r].steps_over(began, ended) for r in lasts}
    excused_s = {r: held_s[r] + (0.0 if _is_routine(lasts[r], alone_s[r], steps[r]) else alone_s[r]) for r in lasts}
    net = {r: tuple(max(part - excused_s[r] / 2, 0.0) for part in parts) for r, parts in halves.items()}
    source = Counter(m.source for m in meetings).most_common(1)[0][0]
    return Lateness(
        source, ended, span_s, len(meetings), {r: sum(parts) for r, parts in net.items()},
        {r: (first, second) for r, (first, second) in net.items()}, {r: tuple(delays) for r, delays in lasts.items()},
        {r: _apart(added, r) for r in added}, excused_s,
    )  # fmt: skip


def _is_routine(delays: Sequence[Delay], paused_s: float, steps: int) -> bool:
    """Whether its pauses make it late to most steps: then they are none that come now and then, as for a checkpoint."""
    if steps < LEAST_STEPS:
        return False
    usual_s = max(OFTEN * paused_s / steps, FELT_S)
    return sum(delay.by_s >= usual_s for delay in delays) >= OFTEN * steps


def _apart(added: Mapping[int, Sequence[float]], rank: int) -> float:
    """The self-normalised sum of how much later than the others' mean it came to each meeting.

    If ranks are late by turns, whatever the spread of that, the signs are a coin's: then a sum above x has a chance
    below exp(-x^2 / 2) (Hoeffding), about that of a normal variable. A rank that is late alike each time has the root
    of the number of meetings.
    """
    others = [added[r] for r in added if r != rank]
    theirs: list[float] = [sum(together) / len(others) for together in zip(*others, strict=True)]
    over = [mine - mean for mine, mean in zip(added[rank], theirs, strict=True)]
    spread = sqrt(sum(one * one for one in over))
    return sum(over) / max(spread, 1e-9)
