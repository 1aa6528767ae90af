"""What repeated looks at running ranks have seen: where they were, and what they waited for, how often."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import inf
from statistics import median

from diagd.daemon.detectors.finding import Location
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import CALL, INPUT, WAIT, Frame
from diagd.daemon.state.pace import Seen

MOST_PLACES = 3
MUCH_IN_MEETINGS = 0.3  # of the looks
OFTEN_LOOKS = 3
# A part of the time that is seen in so many looks is known to a tenth or so: sqrt(p (1 - p) / n).
ENOUGH_LOOKS = 20
SYNCS = ("fsync", "fdatasync")
# Where all that a script can call to communicate goes through; Work.wait, in C++, shows by our own frame around it.
_OPERATIONS = ("/torch/distributed/distributed_c10d.py", "/torch/distributed/_functional_collectives.py")
_FROM_CPP = frozenset({"_distributed_broadcast_coalesced"})  # of DDP's, which issues them itself: before each forward


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a rank's time that others do not spend so, as far as looks tell."""

    share: float  # of the time, beyond the others'
    seen: int
    looks: int
    call: str = ""  # the most frequent one
    file: str = ""


NONE = Part(0.0, 0, 0)


@dataclass(frozen=True, slots=True)
class Beyond:
    """Which looks tell where a rank is: the last round's, or all since then where it is there but now and then."""

    since_s: float = inf
    share: float = 0.0  # of a place in its looks, beyond what it has in the others': less tells nothing


LAST_ROUND = Beyond()


def recent(state: JobState, rank: int, since_s: float = inf) -> list[Seen]:
    """What was seen of it in the last round of looks, and since then."""
    pace = state.paces.get(rank)
    if pace is None:
        return []
    return [look for look in pace.frames if look.at_s >= since_s or pace.rounds.holds(look.at_s, state.now_s)]


def storage(state: JobState, rank: int, others: Sequence[int]) -> Part:
    """In how much more of its time than the others the rank's main thread was in calls on files.

    The kernel tells a call only while it sleeps. To sync a file takes much of a CPU too, so where the kernel has seen
    such a call, the lines that make it count as well. Nothing where no other was looked at: what all ranks write alike
    makes none of them slow.
    """
    mine, theirs = _calls(state, rank), [seen for r in others if (seen := _calls(state, r)).total() >= ENOUGH_LOOKS]
    if mine.total() < ENOUGH_LOOKS or not theirs or not _stored(mine):
        return NONE
    ((call, file), _) = max(mine.items(), key=lambda item: (bool(item[0][0]), item[1]))
    slept = Part(
        _stored(mine) / mine.total() - median(_stored(seen) / seen.total() for seen in theirs),
        _stored(mine), mine.total(), call, file,
    )  # fmt: skip
    synced = _beyond(state, rank, others, lambda look: look.call in SYNCS)
    if call not in SYNCS or synced.share <= slept.share:
        return slept
    return replace(synced, call=call, file=file)


def _calls(state: JobState, rank: int) -> Counter[tuple[str, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    for look in recent(state, rank):
        if look.role == CALL:
            counted[look.call, look.note] += look.times
    return counted


def _stored(calls: Counter[tuple[str, str]]) -> int:
    return sum(times for (call, _), times in calls.items() if call)


def asked(state: JobState, rank: int, others: Sequence[int]) -> Part:
    """In how much more of its time than the others the rank's step loop was asking for its next batch.

    Nothing where no other was looked at.
    """
    return _beyond(state, rank, others, lambda look: look.note == INPUT)


def _beyond(state: JobState, rank: int, others: Sequence[int], counts: Callable[[Seen], bool]) -> Part:
    """The part of the looks at its stack that `counts`, beyond that of the others."""
    seen, total = _counted(state, rank, counts)
    theirs = [(s, of) for s, of in (_counted(state, r, counts) for r in others) if of >= ENOUGH_LOOKS]
    if total < ENOUGH_LOOKS or not theirs:
        return NONE
    return Part(seen / total - median(s / of for s, of in theirs), seen, total)


def _counted(state: JobState, rank: int, counts: Callable[[Seen], bool]) -> tuple[int, int]:
    looks = [look for look in recent(state, rank) if look.role == "rank"]
    return sum(look.times for look in looks if counts(look)), sum(look.times for look in looks)


def places(
    state: JobState, rank: int, data: bool, others: Sequence[int] = (), *, backward: bool = True,
    beyond: Beyond = LAST_ROUND,
) -> tuple[Location, ...]:  # fmt: skip
    """Frames of the user's that it, or the worker or thread it waits for, was seen in most often; the worker's first.

    Of the rank's own, those first in which it spends more of its time than `others` do, and none in which it waits for
    them: neither in an operation nor, where its `backward` pass is known not to be what is slow, in that.
    """
    seen = recent(state, rank, beyond.since_s)
    found: list[Frame] = []
    if data:
        roles = ("worker", "child", "thread") if _waits_at_queue(seen) else ("worker", "child")
        found += _most_often([look for look in seen if look.role in roles], ())
    compared = [[look for look in recent(state, r, beyond.since_s) if look.role == "rank"] for r in others]
    mine = [look for look in seen if look.role == "rank"]
    own = _most_often(mine, [looks for looks in compared if looks], beyond.share)
    site = state.detail(rank).backward_site
    found += [frame for frame in own if backward or site is None or not _same_line(frame, site)][:MOST_PLACES]
    if not found and site is not None and (backward or not seen):
        found = [site]
    return tuple(Location(rank, frame) for frame in found)


def meetings(state: JobState, rank: int) -> tuple[Location, ...]:
    """Frames of the user's that it was in an operation with the others from most often, where it is often in one."""
    mine = [look for look in recent(state, rank) if look.role == "rank"]
    shares = _shares(mine, of=_waits_for_others)
    if sum(shares.values()) < MUCH_IN_MEETINGS:
        return ()
    often = sorted(shares, key=lambda frame: -shares[frame])
    return tuple(Location(rank, frame) for frame in often[:MOST_PLACES])


def in_meetings(state: JobState, rank: int) -> float | None:
    """The part of the looks at it that met it in an operation with others; None where there are too few."""
    seen, total = _counted(state, rank, _waits_for_others)
    return seen / total if total >= ENOUGH_LOOKS else None


def _same_line(frame: Frame, other: Frame) -> bool:
    return (frame.file, frame.line) == (other.file, other.line)


def _waits_at_queue(seen: Sequence[Seen]) -> bool:
    """Whether what it asks for comes through a queue, from a thread of its own."""
    asks = (look.frames for look in seen if look.note == INPUT)
    return any(f.function == "get" and f.file.endswith("/queue.py") for frames in asks for f in frames)


def _most_often(looks: Sequence[Seen], compared: Sequence[Sequence[Seen]], least: float = 0.0) -> list[Frame]:
    mine, theirs = _shares(looks), [_shares(others) for others in compared]
    more = {frame: s - median(shares.get(frame, 0.0) for shares in theirs or [{}]) for frame, s in mine.items()}
    enough = [frame for frame, s in more.items() if not least or s >= least]
    return sorted(enough, key=lambda frame: -more[frame])[: MOST_PLACES + 1]


def _shares(looks: Sequence[Seen], of: Callable[[Seen], bool] | None = None) -> dict[Frame, float]:
    """The share of each place in the looks, of those that count: where it does not wait for others, if not said."""
    counted: Counter[Frame] = Counter()
    for look in looks:
        counts = of(look) if of is not None else not _waits_for_others(look)
        if counts and (frame := next((f for f in look.frames if f.user), None)) is not None:
            counted[frame] += look.times
    total = max(sum(look.times for look in looks), 1)
    return {frame: times / total for frame, times in counted.items()}


def _waits_for_others(look: Seen) -> bool:
    """Whether what the user's innermost line has called is an operation, or the wait for one: no work of its own."""
    called = takewhile(lambda frame: not frame.user, look.frames)
    return look.note == WAIT or any(map(_communicates, called))


def _communicates(frame: Frame) -> bool:
    of_torch = frame.file.endswith(_OPERATIONS) or frame.function in _FROM_CPP
    return of_torch or (frame.ours and frame.function == "wait")


def seen_often(state: JobState, rank: int) -> bool:
    """Whether its places rest on more than a look or two."""
    return sum(look.times for look in recent(state, rank) if look.role not in (CALL, "thread")) >= OFTEN_LOOKS


def in_worker(state: JobState, ranks: Sequence[int]) -> bool:
    """Whether a data worker of theirs was seen in the user's own code."""
    looks = (look for r in ranks if (pace := state.paces.get(r)) is not None for look in pace.frames)
    return any(look.role in ("worker", "child") and any(f.user for f in look.frames) for look in looks)
