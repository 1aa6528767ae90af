"""What a rank that has ended, or is on its way out, fell out of: an end of that kind is a consequence."""

from collections.abc import Iterator
from dataclasses import replace

from diagd.daemon.detectors.backend import by_thread, communicates, unfinished_tail
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Operation

NOT_WAITS = frozenset({"DESTROY", "STORE_SET", "WAIT", "NONE"})
_FAILED_LATELY_S = 30.0
_OWN_ERRORS = frozenset(
    {"TypeError", "ValueError", "AttributeError", "IndexError", "NotImplementedError", "AssertionError"}
)
OWN_SOCKET = ("failed to listen", "EADDRINUSE", "ddress already in use")  # of a store or listener of the rank's own
_AT_ONCE_S = 0.05
_ENDS = ("exception", "exit", "shutdown")
BACKEND_WORDS = ("gloo/transport", "[gloo", "NCCL", "ProcessGroup", "c10d")
_NETWORK_WORDS = ("Connection closed by peer", "Connection reset", "Timed out", "Broken pipe")  # anyone's
_SAID = (*BACKEND_WORDS, *_NETWORK_WORDS, "onnection refused", "monitoredBarrier", "imeout", "imed out", "aborted")


def failed_last(state: JobState, detail: Detail) -> Operation | None:
    """A wait that raised, where nothing was done since: the exception is on its way out."""
    last = detail.history[-1] if detail.history else None
    if last is None or not last.failed or last.name in NOT_WAITS or _refused(last):
        return None
    c, r = state.columns, detail.rank
    moved_s = float(c.program_moved_s[r])
    if detail.ending is None and detail.in_shutdown_s is None:  # it may have been caught
        moved_s = max(moved_s, float(c.main_cpu_moved_s[r]), float(c.frames_moved_s[r]))
    return last if (last.returned_s or 0.0) >= moved_s - 1.0 else None


def dead_in(state: JobState, detail: Detail) -> Iterator[Operation]:
    """Where a dead rank's death is a consequence of a wait, that wait."""
    ending = detail.ending if detail.ending is not None and detail.ending.what in _ENDS else None
    at_s = ending.at_s if ending is not None and ending.at_s else detail.exit.at_s if detail.exit else state.now_s
    blocking = [op for op in detail.operations if op.blocking and op.name not in NOT_WAITS]
    if ending is not None:  # the main thread came to its end, so only what it was in itself can have ended it
        blocking = [op for op in blocking if op.thread == detail.pid]
    if blocking:
        yield from by_thread(detail, blocking)
        return
    failed = [op for op in detail.history if op.failed and op.name not in NOT_WAITS and not _refused(op)]
    if (
        failed
        and at_s - (failed[-1].returned_s or failed[-1].entered_s) < _FAILED_LATELY_S
        and _raised_by(detail, failed[-1])
    ):
        yield failed[-1]
    elif _raised_in_backend(detail) and (op := _last_pending(detail)) is not None:
        yield op
    elif (broken := broke_in_backward(state, detail)) is not None:
        yield broken


def _refused(op: Operation) -> bool:
    """Whether it was never begun: torch refused its arguments, or the rank's own socket: no other rank's doing."""
    kind = op.failed.partition(":")[0].rpartition(".")[2]
    if kind in _OWN_ERRORS or any(words in op.failed for words in OWN_SOCKET):
        return True
    waited_s = (op.returned_s or op.entered_s) - op.entered_s
    return kind == "RuntimeError" and waited_s < _AT_ONCE_S and not any(w in op.failed for w in _SAID)


def _raised_by(detail: Detail, op: Operation) -> bool:
    """Whether the exception that ended the process is the one that the operation raised (or came of it)."""
    ending = detail.ending
    if ending is None or not ending.raised:
        return True
    kind, _, message = op.failed.partition(": ")
    if not (ending.message and message):
        return kind.rpartition(".")[2] == ending.type.rpartition(".")[2] and message == ending.message
    return ending.message[:40] in op.failed or message[:40] in ending.message


def _raised_in_backend(detail: Detail) -> bool:
    """An exception of the communication library that came out of C++ (backward), not out of a wrapped call."""
    ending = detail.ending
    if ending is None or not ending.raised:
        return False
    inside = not ending.frames or communicates(ending.frames[0])
    said = (*BACKEND_WORDS, *_NETWORK_WORDS) if inside else BACKEND_WORDS
    return any(word in ending.message for word in said)


def broke_in_backward(state: JobState, detail: Detail) -> Operation | None:
    """What the rank's last backward pass fell out of, where its script caught that and made no step since."""
    fact = state.signals.fact(detail.rank, "backward/broke")
    step = int(state.columns.step[detail.rank])
    if fact is None or fact[0] <= step or not any(word in fact[1] for word in BACKEND_WORDS):
        return None
    op = _last_pending(detail)
    return (
        replace(op, failed=fact[1], entered_s=op.entered_s or float(state.columns.step_s[detail.rank])) if op else None
    )


def _last_pending(detail: Detail) -> Operation | None:
    if pending := unfinished_tail(detail):
        # One that was issued before others that have finished was, more likely than not, only not marked.
        done_s = max((op.entered_s for op in detail.recorder if op.retired), default=0.0)
        return next((op for op in pending if op.entered_s >= done_s), pending[0])
    group = max(detail.groups, key=lambda g: g.enqueued, default=None)
    if group is None:
        return None
    at_s = detail.ending.at_s if detail.ending is not None else 0.0
    return Operation("COLLECTIVE", group=group.name, seq=max(group.enqueued, 0), source="counters", entered_s=at_s)
