"""Where each rank stands: what it waits in, or that it is outside communication."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from diagd.daemon.detectors.backend import CREATION, by_thread, rests_in_communication, unfinished_tail
from diagd.daemon.detectors.fallen import NOT_WAITS, broke_in_backward, dead_in, failed_last
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Operation, Status

STORE = frozenset({"STORE_GET", "STORE_WAIT", "STORE_JOIN"})
_FROM_OUTSIDE = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"})  # these end a wait, it does not run out
_WORKS_S = 3.0


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
    if state.status(rank).gone and detail.attempt < state.attempt:
        return ()  # it is to be started again
    if state.why_not_known(rank):
        return ()  # where it was at its dump, it is no more
    falls = detail.ending is not None and detail.ending.raised  # and nothing will catch it
    gone = state.status(rank).gone or falls
    ops = list(dead_in(state, detail)) if gone else list(_waiting_in(state, detail))
    ended = gone and not (detail.exit is not None and detail.exit.signal in _FROM_OUTSIDE)
    return tuple(_wait(detail, op, bool(op.failed) or ended) for op in ops)


def _wait(detail: Detail, op: Operation, failed: bool) -> Wait:
    group = detail.group(op.group)
    members = group.ranks if group is not None else ()
    return Wait(detail.rank, op, op.entered_s, members, failed)


def _waiting_in(state: JobState, detail: Detail) -> Iterator[Operation]:
    current = _is_current(state, detail.rank)
    blocking = [op for op in detail.operations if op.blocking and op.name not in NOT_WAITS and current]
    if blocking and not _works_meanwhile(state, detail, blocking):
        yield from by_thread(detail, blocking)
    elif pending := _waits_in_backend(state, detail):
        yield from pending
    elif (failed := failed_last(state, detail)) is not None:
        yield failed
    elif detail.in_shutdown_s is not None and (broken := broke_in_backward(state, detail)) is not None:
        yield broken


def _is_current(state: JobState, rank: int) -> bool:
    """Whether the rank is still in its detail's operations: details are read seldom while its numbers come often."""
    c, read_s = state.columns, state.read_s.get(rank, state.now_s)
    if float(c.seen_s[rank]) <= read_s:
        return True
    return 0 < float(c.wait_s[rank]) <= read_s


def _works_meanwhile(state: JobState, detail: Detail, blocking: list[Operation]) -> bool:
    """Whether only threads in the background wait (as in an asynchronous checkpoint), and the main thread goes on."""
    seen = {op.thread for op in (*detail.history, *detail.operations)}
    if detail.pid not in seen or any(op.thread == detail.pid for op in blocking):
        return False
    c, r = state.columns, detail.rank
    last_s = max(float(c.main_cpu_moved_s[r]), float(c.frames_moved_s[r]), float(c.step_s[r]))
    return state.now_s - last_s < _WORKS_S


def _waits_in_backend(state: JobState, detail: Detail) -> list[Operation]:
    """An operation that C++ issued (DDP's reducer, FSDP): the recorder has it unfinished, and the rank sits in torch.

    The recorder can lag one look behind, so an unfinished entry alone says nothing: the main thread must rest inside
    torch, not in the user's code. Sends and receives of one group wait for their partners all at once.
    """
    pending = unfinished_tail(detail)
    waits_unseen = any(op.blocking and op.name == "WAIT" for op in detail.operations)
    on_device = (
        "nccl" in detail.backend
    )  # the host may be anywhere: it rests where it next asks the device for a result
    if not pending or not (on_device or waits_unseen or state.from_dumps or _rests_in_torch(state, detail)):
        return []
    oldest: dict[str, Operation] = {}
    for op in pending:
        oldest.setdefault(op.group, op)
    op = min(oldest.values(), key=lambda op: op.entered_s)
    main = detail.stack.main if detail.stack is not None else None
    frames = main.user_frames if main is not None else ()
    found = [other for other in pending if other.p2p and other.group == op.group] if op.p2p else [op]
    return [replace(one, site=frames[0]) if frames and one.site is None else one for one in found]


def _rests_in_torch(state: JobState, detail: Detail) -> bool:
    stack = detail.stack
    if stack is not None and float(state.columns.program_moved_s[detail.rank]) > stack.taken_s:
        return False  # it has moved on since
    main = stack.main if stack is not None else None
    if main is None or not main.frames:
        return detail.rank < len(state.phases) and state.phases[detail.rank] in ("backward", "collective")
    return rests_in_communication(detail)


def outside(state: JobState, rank: int) -> bool:
    """Whether the rank runs or rests outside communication (and has not ended)."""
    return not state.status(rank).gone and not waits_of(state, rank)


def is_stopped(state: JobState, rank: int) -> bool:
    """Whether the rank's process is stopped by a signal or a debugger, or frozen with its cgroup."""
    stack = state.detail(rank).stack
    frozen = stack is not None and ("freezer" in stack.wchan or "refrigerator" in stack.wchan)
    return state.status(rank) == Status.STOPPED or frozen
