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
# A look at more of them would take too long.
MOST = 24  # messages of a lane
MOST_LANES = 32  # of those whose receivers wait longest, and as many others to compare them with
MOST_RANKS = 256

Lane = tuple[int, int, str, int]  # sender, receiver, group, tag
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
    having = [r for r, pace in state.paces.items() if pace.passed and not state.status(r).gone][:MOST_RANKS]
    passed = {
        r: [op for op in state.paces[r].passed.values() if op.entered_s >= since_s and op.numel >= 0] for r in having
    }
    series: dict[tuple[tuple[int, int], Kind], list[Series]] = defaultdict(list)
    for ranks, made in [*_messages(passed), *_pair_operations(state, passed)]:
        for kind, one in made.items():
            series[ranks, kind].append(one)
    found = (_crossing(ranks, kind, several) for (ranks, kind), several in series.items())
    return [crossing for crossing in found if crossing is not None]


class Series:
    """Those of one lane, or of one group."""

    def __init__(self) -> None:
        self.over_s: list[float] = []  # when each was over
        self.seconds: list[float] = []

    def rate(self) -> float:
        """How many there are a second; not all of those between two looks were read, but how closely they follow."""
        gaps = [after - before for before, after in pairwise(sorted(self.over_s))]
        return 1 / max(median(gaps), 1e-6) if gaps else 0.0


def _crossing(ranks: tuple[int, int], kind: Kind, several: Sequence[Series]) -> Crossing | None:
    taken, times = [s for one in several for s in one.seconds], [s for one in several for s in one.over_s]
    if len(taken) < LEAST or max(times) - min(times) < LEAST_SPAN_S:
        return None
    seconds = median(taken)
    return Crossing(ranks, kind, len(taken), seconds, min(seconds * sum(one.rate() for one in several), 1.0))


def _messages(passed: dict[int, list[Operation]]) -> Iterable[tuple[tuple[int, int], dict[Kind, Series]]]:
    """Receives with the send that they have met, by lane."""
    sends: dict[Lane, list[Operation]] = defaultdict(list)
    receives: dict[Lane, list[Operation]] = defaultdict(list)
    for rank, ops in passed.items():
        for op in ops:
            if op.name == "SEND":
                sends[rank, op.peer, op.group, op.tag].append(op)
            elif op.name == "RECV" and op.peer >= 0:
                receives[op.peer, rank, op.group, op.tag].append(op)
    for lane in _chosen({lane: ops for lane, ops in receives.items() if lane in sends}):
        sent = sorted(sends[lane], key=lambda op: op.entered_s)
        made: dict[Kind, Series] = defaultdict(Series)
        for number, op in enumerate(receives[lane]):
            series = made[MESSAGE, op.numel, op.dtype]
            series.over_s.append(op.returned_s or 0.0)
            if number % (len(receives[lane]) // MOST + 1) == 0 and (seconds := _met_s(sent, op)) is not None:
                series.seconds.append(seconds)
        yield (min(lane[:2]), max(lane[:2])), made


def _chosen(receives: dict[Lane, list[Operation]]) -> list[Lane]:
    held = {lane: median(op.held_s for op in ops[-MOST:]) for lane, ops in receives.items()}
    lanes = sorted(held, key=lambda lane: (-held[lane], lane))
    others = lanes[MOST_LANES:]
    return lanes[:MOST_LANES] + others[:: len(others) // MOST_LANES + 1]


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


def _pair_operations(
    state: JobState, passed: dict[int, list[Operation]]
) -> Iterable[tuple[tuple[int, int], dict[Kind, Series]]]:
    """Operations of groups of two, by group."""
    pairs = {g.name: g.ranks for detail in state.details.values() for g in detail.groups if len(g.ranks) == 2}
    places: dict[str, dict[int, dict[int, Operation]]] = defaultdict(lambda: defaultdict(dict))
    for rank, ops in passed.items():
        for op in ops:
            if not op.p2p and rank in pairs.get(op.group, ()):
                places[op.group][op.seq][rank] = op
    for group, met in places.items():
        made: dict[Kind, Series] = defaultdict(Series)
        for a, b in (tuple(sides.values()) for sides in met.values() if len(sides) == 2):
            both_s = max(a.entered_s, b.entered_s)
            series = made[a.name, a.numel, a.dtype]
            series.over_s.append(a.returned_s or both_s)
            series.seconds.append(max(min(min(op.held_s, (op.returned_s or both_s) - both_s) for op in (a, b)), 0.0))
        yield (min(pairs[group]), max(pairs[group])), made
