"""Sends and receives of two ranks pair in their order, so one that is open is not there for every partner.

They are counted from an operation on that both ranks have done together. Where there is none, their times must do.
"""

from collections.abc import Iterator
from typing import NamedTuple

from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Operation


def is_surplus(state: JobState, rank: int, partner: int, op: Operation) -> bool:
    """Whether the partner's open operations of the other kind are all taken by the rank's before this one.

    What the partner did must have been read since it began.
    """
    mine, theirs = state.detail(rank), state.detail(partner)
    read_s = float(state.columns.history_s[partner]) if theirs.history else 0.0
    if read_s <= op.entered_s:
        return False
    counted = _by_count(op, list(_all(mine)), list(_all(theirs)), rank)
    if counted is not None:
        return counted
    return op.name == "SEND" and mine.host == theirs.host and _by_time(op, mine, theirs, rank)


class _Met(NamedTuple):
    """A collective that both ranks have come out of, and how many operations of the pair each has begun before it."""

    mine: int
    theirs: int
    at: tuple[float, float]  # when each had entered it


def _by_count(op: Operation, mine: list[Operation], theirs: list[Operation], rank: int) -> bool | None:
    """By their numbers since the ranks last met; None where that is not known."""
    alike = [one for one in mine if _alike(op, one)]
    pairs = [one for one in theirs if _pairs(op, one, rank)]
    met = _meetings(mine, theirs, alike, pairs)
    if op.peer < 0 or any(one.peer < 0 for one in pairs):
        return None  # from any rank: of which it was is not known
    if len(met) < 2 or met[-1].mine - met[0].mine != met[-1].theirs - met[0].theirs:
        return None  # what was sent before they met may be taken after that
    at_mine, at_theirs = met[-1].at
    if not (_are_over(alike[: met[-1].mine], at_mine) and _are_over(pairs[: met[-1].theirs], at_theirs)):
        return None
    before = sum(at_mine < one.entered_s <= op.entered_s for one in alike)
    return before > sum(one.entered_s > at_theirs for one in pairs)


def _meetings(
    mine: list[Operation], theirs: list[Operation], alike: list[Operation], pairs: list[Operation]
) -> list[_Met]:  # fmt: skip
    """In their order."""
    done = {(one.group, one.seq): one.entered_s for one in theirs if _is_done(one)}
    also = [one for one in mine if _is_done(one) and (one.group, one.seq) in done]
    found = [(one.entered_s, done[one.group, one.seq]) for one in also]
    return [
        _Met(sum(one.entered_s < at[0] for one in alike), sum(one.entered_s < at[1] for one in pairs), at)
        for at in sorted(found)
    ]


def _are_over(some: list[Operation], by_s: float) -> bool:
    return all(one.returned_s is not None and one.returned_s <= by_s for one in some)


def _is_done(op: Operation) -> bool:
    return not op.p2p and op.seq > 0 and op.returned_s is not None


def _by_time(send: Operation, mine: Detail, theirs: Detail, sender: int) -> bool:
    """A send that begins after a receive has ended cannot have been that one's, nor an earlier one's: it takes one of
    those still open. The converse does not hold of receives, as a send may end before its receive begins. Times of two
    hosts are not compared so finely.
    """
    receives = [op for op in _all(theirs) if _pairs(send, op, sender)]
    ended_s = max((op.returned_s for op in receives if op.returned_s is not None), default=None)
    if ended_s is None:
        return False
    since = [op for op in _all(mine) if _alike(send, op) and ended_s < op.entered_s <= send.entered_s]
    return len(since) > sum(op.returned_s is None for op in receives)


def _all(detail: Detail) -> Iterator[Operation]:
    """Its operations, each once: one that was not finished when they were read stands in both lists."""
    yield from detail.history
    known = {op.entered_s for op in detail.history}
    yield from (op for op in detail.operations if op.entered_s not in known)


def _pairs(op: Operation, other: Operation, rank: int) -> bool:
    wanted = "RECV" if op.name == "SEND" else "SEND"
    return (other.name, other.group, other.tag) == (wanted, op.group, op.tag) and other.peer in (rank, -1)


def _alike(op: Operation, other: Operation) -> bool:
    return (other.name, other.group, other.tag, other.peer) == (op.name, op.group, op.tag, op.peer)
