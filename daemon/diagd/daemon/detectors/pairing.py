"""Sends and receives of two ranks pair in their order, so a receive that is open is not there for every send."""

from collections.abc import Iterator

from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Operation


def is_surplus(state: JobState, sender: int, receiver: int, send: Operation) -> bool:
    """Whether the receiver's open receives are all taken by sends before this one.

    A send that begins after a receive has ended cannot have been that one's, nor an earlier one's: it takes one of
    those still open. The converse does not hold of receives, as a send may end before its receive begins. Times of two
    hosts are not compared so finely, and what the receiver did must have been read since the send began.
    """
    mine, theirs = state.detail(sender), state.detail(receiver)
    read_s = float(state.columns.history_s[receiver]) if theirs.history else 0.0
    if send.name != "SEND" or mine.host != theirs.host or read_s <= send.entered_s:
        return False
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


def _pairs(send: Operation, receive: Operation, sender: int) -> bool:
    same = (receive.name, receive.group, receive.tag) == ("RECV", send.group, send.tag)
    return same and receive.peer in (sender, -1)


def _alike(send: Operation, other: Operation) -> bool:
    return (other.name, other.group, other.tag, other.peer) == (send.name, send.group, send.tag, send.peer)
