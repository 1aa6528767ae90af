"""Where each rank stands: what it waits in, or that it is outside communication."""

from collections.abc import Iterator
from dataclasses import dataclass

from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Operation, Status

CREATION = frozenset({"NEW_GROUP", "INIT"})
STORE = frozenset({"STORE_GET", "STORE_WAIT"})
NOT_WAITS = frozenset({"DESTROY", "STORE_SET", "WAIT", "NONE"})
_FAILED_LATELY_S = 30.0


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank is inside `op` since `since_s`; `failed` where the wait has ended in an exception or the rank's death."""

    rank: int
    op: Operation
    since_s: float
    members: tuple[int, ...]
    failed: bool = False

    @property
    def kind(self) -> str:
        """collective, p2p, store or creation."""
        if self.op.name in CREATION:
            return "creation"
        if self.op.name in STORE:
            return "store"
        return "p2p" if self.op.p2p else "collective"


def waits_of(state: JobState, rank: int) -> tuple[Wait, ...]:
    """The operations that the rank waits in, the main thread's first; none where it is outside communication.

    A rank that died in a wait, or by an exception that a wait raised, stands where it died: that end is a consequence.
    """
    detail = state.detail(rank)
    ops = list(_dead_in(state, detail)) if state.status(rank).gone else list(_waiting_in(state, detail))
    return tuple(_wait(detail, op, bool(op.failed) or state.status(rank).gone) for op in ops)


def _wait(detail: Detail, op: Operation, failed: bool) -> Wait:
    group = detail.group(op.group)
    members = group.ranks if group is not None else ()
    return Wait(detail.rank, op, op.entered_s, members, failed)


def _waiting_in(state: JobState, detail: Detail) -> Iterator[Operation]:
    blocking = [op for op in detail.operations if op.blocking and op.name not in NOT_WAITS]
    if blocking:
        yield from _by_thread(detail, blocking)
    elif (op := _waits_in_backend(state, detail)) is not None:
        yield op
    elif (failed := _failed_last(detail)) is not None:
        yield failed


def _by_thread(detail: Detail, blocking: list[Operation]) -> list[Operation]:
    """One operation a thread: what the store is asked for inside a group's creation is part of the creation."""
    found: dict[int, Operation] = {}
    for op in blocking:  # oldest first, so the outer call comes before the inner
        outer = found.get(op.thread)
        if outer is None or outer.name not in CREATION:
            found[op.thread] = op
    main = detail.pid  # Linux: the main thread's id is the process's
    return sorted(found.values(), key=lambda op: (op.thread != main, op.entered_s))


def _waits_in_backend(state: JobState, detail: Detail) -> Operation | None:
    """An operation that C++ issued (DDP's reducer, FSDP): the flight recorder has it unfinished, and the rank sits in torch.

    The recorder can lag one look behind, so an unfinished entry alone says nothing: the main thread must rest inside
    torch, not in the user's code.
    """
    pending = [op for op in detail.recorder if op.retired is False]
    if not pending or not _rests_in_torch(state, detail):
        return None
    oldest: dict[str, Operation] = {}
    for op in pending:
        oldest.setdefault(op.group, op)
    return min(oldest.values(), key=lambda op: op.entered_s)


def _rests_in_torch(state: JobState, detail: Detail) -> bool:
    stack = detail.stack
    main = stack.main if stack is not None else None
    if main is None or not main.frames:
        return detail.rank < len(state.phases) and state.phases[detail.rank] in ("backward", "collective")
    inner = next((f for f in main.frames if "diagd" not in f.file), main.frames[0])
    if inner.user:
        return False
    return "/torch/" in inner.file and "/torch/utils/data/" not in inner.file


def _failed_last(detail: Detail) -> Operation | None:
    """A wait that raised, where nothing was done since: the exception is on its way out."""
    last = detail.history[-1] if detail.history else None
    return last if last is not None and last.failed and last.name not in NOT_WAITS else None


def _dead_in(state: JobState, detail: Detail) -> Iterator[Operation]:
    """Where a dead rank's death is a consequence of a wait, that wait."""
    at_s = detail.exit.at_s if detail.exit is not None else state.now_s
    blocking = [op for op in detail.operations if op.blocking and op.name not in NOT_WAITS]
    if blocking:
        yield from _by_thread(detail, blocking)
        return
    failed = [op for op in detail.history if op.failed and op.name not in NOT_WAITS]
    if (
        failed
        and at_s - (failed[-1].returned_s or failed[-1].entered_s) < _FAILED_LATELY_S
        and _raised_by(detail, failed[-1])
    ):
        yield failed[-1]
    elif _raised_in_backend(detail) and (op := _last_pending(detail)) is not None:
        yield op


def _raised_by(detail: Detail, op: Operation) -> bool:
    """Whether the exception that ended the process is the one that the operation raised (or came of it)."""
    ending = detail.ending
    if ending is None or ending.what != "exception":
        return True
    return ending.message[:40] in op.failed or op.failed.partition(": ")[2][:40] in ending.message


_BACKEND_WORDS = (
    "gloo",
    "Connection closed by peer",
    "Connection reset",
    "Timed out",
    "NCCL",
    "ProcessGroup",
    "c10d",
    "Broken pipe",
)


def _raised_in_backend(detail: Detail) -> bool:
    """An exception of the communication library that came out of C++ (backward), not out of a wrapped call."""
    ending = detail.ending
    return ending is not None and ending.what == "exception" and any(w in ending.message for w in _BACKEND_WORDS)


def _last_pending(detail: Detail) -> Operation | None:
    if pending := [op for op in detail.recorder if op.retired is False]:
        return pending[0]
    group = max(detail.groups, key=lambda g: g.enqueued, default=None)
    if group is None:
        return None
    at_s = detail.ending.at_s if detail.ending is not None else 0.0
    return Operation("COLLECTIVE", group=group.name, seq=max(group.enqueued, 0), source="counters", entered_s=at_s)


def outside(state: JobState, rank: int) -> bool:
    """Whether the rank runs or rests outside communication (and has not ended)."""
    return not state.status(rank).gone and not waits_of(state, rank)


def is_stopped(state: JobState, rank: int) -> bool:
    """Whether the rank's process is stopped by a signal or a debugger."""
    return state.status(rank) == Status.STOPPED
