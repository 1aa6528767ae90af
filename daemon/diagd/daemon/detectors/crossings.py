"""What two ranks pass between them, and how long that takes once both are there."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Operation

LOOK_BACK_S = 25.0
LEAST = 8  # messages, to speak of a pair
LEAST_SPAN_S = 2.0  # so that a burst of something else on the host is not taken for the link
MOST = 64  # of each kind, between two ranks
MOST_PAIRS = 64

Kind = tuple[str, int, str]  # MESSAGE or the operation of a group of two, elements, dtype
MESSAGE = "MESSAGE"


@dataclass(frozen=True, slots=True)
class Crossing:
    """All of one kind and size between two ranks."""

    ranks: tuple[int, int]
    kind: Kind
    count: int
    seconds: float  # median, from when both were there until it was over, as far as a thread was held by it
    share: float  # of the time

    @property
    def label(self) -> str:
        """ "MESSAGE of 4096 float32"."""
        return f"{self.kind[0]} of {self.kind[1]} {self.kind[2]}".rstrip()


def crossings(state: JobState) -> list[Crossing]:
    """Those that enough is known of."""
    since_s = state.now_s - LOOK_BACK_S
    passed = {
        r: [op for op in pace.passed.values() if op.entered_s >= since_s and op.numel >= 0]
        for r, pace in state.paces.items()
        if not state.status(r).gone
    }
    times: dict[tuple[tuple[int, int], Kind], list[tuple[float, float]]] = defaultdict(list)
    for ranks, kind, at_s, seconds in [*_messages(passed), *_pair_operations(state, passed)]:
        times[ranks, kind].append((at_s, seconds))
    found = (_crossing(ranks, kind, sorted(taken)) for (ranks, kind), taken in times.items())
    return [crossing for crossing in found if crossing is not None]


def _crossing(ranks: tuple[int, int], kind: Kind, taken: Sequence[tuple[float, float]]) -> Crossing | None:
    span_s = taken[-1][0] - taken[0][0]
    if len(taken) < LEAST or span_s < LEAST_SPAN_S:
        return None
    seconds = median(s for _, s in taken)
    # Not all of those between two looks were read: how closely they follow each other tells how many there are.
    gap_s = median(after - before for (before, _), (after, _) in pairwise(taken))
    return Crossing(ranks, kind, len(taken), seconds, min(seconds / max(gap_s, seconds, 1e-9), 1.0))


Measured = tuple[tuple[int, int], Kind, float, float]  # ranks, kind, when it was over, seconds


def _messages(passed: dict[int, list[Operation]]) -> Iterable[Measured]:
    """Receives with the send that they have met."""
    sends: dict[tuple[int, int, str, int], list[Operation]] = defaultdict(list)
    receives: dict[tuple[int, int, str, int], list[Operation]] = defaultdict(list)
    for rank, ops in passed.items():
        for op in ops:
            if op.name == "SEND":
                sends[rank, op.peer, op.group, op.tag].append(op)
            elif op.name == "RECV" and op.peer >= 0:
                receives[op.peer, rank, op.group, op.tag].append(op)
    for lane in sorted(sends.keys() & receives.keys())[:MOST_PAIRS]:
        sent = sorted(sends[lane], key=lambda op: op.entered_s)
        ranks = (min(lane[:2]), max(lane[:2]))
        for op in receives[lane][-MOST:]:
            if op.returned_s and (seconds := _met_s(sent, op)) is not None:
                yield ranks, (MESSAGE, op.numel, op.dtype), op.returned_s, seconds


def _met_s(sent: Sequence[Operation], received: Operation) -> float | None:
    """For how long the receiver was held while its sender was there, too; None where it is not plain which send it met.

    It is the last one entered before the receive was over. Where the sender is quick it may have entered its next by
    then: that is told by having been entered after the one before was over.
    """
    over_s = received.returned_s or 0.0
    last = bisect_left(sent, over_s, key=lambda op: op.entered_s) - 1
    if last < 0:
        return None
    candidates = [sent[last]]
    if last and not sent[last - 1].returned_s:
        return None
    if last and (sent[last - 1].returned_s or 0.0) <= sent[last].entered_s:
        candidates.append(sent[last - 1])
    elif last and (sent[last - 1].returned_s or 0.0) > received.entered_s:
        return None  # two at once
    both = [
        min(over_s, op.returned_s or over_s) - max(op.entered_s, received.entered_s)
        for op in candidates
        if op.numel == received.numel
    ]
    return max(0.0, min(max(both), received.held_s)) if both else None


def _pair_operations(state: JobState, passed: dict[int, list[Operation]]) -> Iterable[Measured]:
    """Operations of groups of two."""
    pairs = {g.name: g.ranks for detail in state.details.values() for g in detail.groups if len(g.ranks) == 2}
    places: dict[tuple[str, int], dict[int, Operation]] = defaultdict(dict)
    for rank, ops in passed.items():
        for op in ops:
            if not op.p2p and rank in pairs.get(op.group, ()):
                places[op.group, op.seq][rank] = op
    for (group, _), sides in places.items():
        if len(sides) == 2:
            a, b = sides.values()
            both_s = max(a.entered_s, b.entered_s)
            seconds = min(min(op.held_s, (op.returned_s or both_s) - both_s) for op in (a, b))
            first, second = sorted(pairs[group])
            yield (first, second), (a.name, a.numel, a.dtype), a.returned_s or both_s, max(seconds, 0.0)
