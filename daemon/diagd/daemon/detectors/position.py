"""Where each rank stands: what it waits in, or that it is outside communication."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Frame, Operation, Status

CREATION = frozenset({"NEW_GROUP", "INIT"})
STORE = frozenset({"STORE_GET", "STORE_WAIT", "STORE_JOIN"})
NOT_WAITS = frozenset({"DESTROY", "STORE_SET", "WAIT", "NONE"})
_FAILED_LATELY_S = 30.0
_FROM_OUTSIDE = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"})  # these end a wait, it does not run out
_WORKS_S = 3.0
# Where Python rests while C++ communicates. Elsewhere in torch (serialization, a file lock, compilation) it does not.
_COMMUNICATES = tuple(
    f"/torch/{place}" for place in ("autograd/", "distributed/", "nn/parallel/", "_ops.py", "_tensor.py")
)


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
    ops = list(_dead_in(state, detail)) if gone else list(_waiting_in(state, detail))
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
        yield from _by_thread(detail, blocking)
    elif pending := _waits_in_backend(state, detail):
        yield from pending
    elif (failed := _failed_last(state, detail)) is not None:
        yield failed
    elif detail.in_shutdown_s is not None and (broken := _broke_in_backward(state, detail)) is not None:
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


def _by_thread(detail: Detail, blocking: list[Operation]) -> list[Operation]:
    """One operation a thread: what the store is asked for inside a group's creation is part of the creation."""
    found: dict[int, Operation] = {}
    for op in blocking:  # oldest first, so the outer call comes before the inner
        outer = found.get(op.thread)
        if outer is None or outer.name not in CREATION:
            found[op.thread] = op
    main = detail.pid  # Linux: the main thread's id is the process's
    return sorted(found.values(), key=lambda op: (op.thread != main, op.entered_s))


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


def lane_of(op: Operation) -> tuple[object, ...]:
    """Operations of one lane end in the order in which they were issued."""
    return (op.group, op.name, op.peer) if op.p2p else (op.group,)


def unfinished_tail(detail: Detail) -> list[Operation]:
    """The recorder's unfinished entries behind each group's last finished one.

    Groups finish their operations in order; an older entry that is not marked finished was only not marked. Sends and
    receives keep an order of their own with each partner.
    """
    tail: dict[tuple[object, ...], list[Operation]] = {}
    for op in detail.recorder:
        lane = lane_of(op)
        if op.retired is False:
            tail.setdefault(lane, []).append(op)
        else:
            tail.pop(lane, None)
    return [op for ops in tail.values() for op in ops]


def _rests_in_torch(state: JobState, detail: Detail) -> bool:
    stack = detail.stack
    if stack is not None and float(state.columns.program_moved_s[detail.rank]) > stack.taken_s:
        return False  # it has moved on since
    main = stack.main if stack is not None else None
    if main is None or not main.frames:
        return detail.rank < len(state.phases) and state.phases[detail.rank] in ("backward", "collective")
    return rests_in_communication(detail)


def rests_in_communication(detail: Detail) -> bool:
    """Whether the last stack shows the main thread at rest where torch communicates."""
    main = detail.stack.main if detail.stack is not None else None
    inner = next((f for f in main.frames if not f.ours), None) if main is not None else None
    return inner is not None and _communicates(inner)


def _communicates(frame: Frame) -> bool:
    return not frame.user and any(place in frame.file for place in _COMMUNICATES)


def _failed_last(state: JobState, detail: Detail) -> Operation | None:
    """A wait that raised, where nothing was done since: the exception is on its way out."""
    last = detail.history[-1] if detail.history else None
    if last is None or not last.failed or last.name in NOT_WAITS or _refused(last):
        return None
    c, r = state.columns, detail.rank
    moved_s = float(c.program_moved_s[r])
    if detail.ending is None and detail.in_shutdown_s is None:  # it may have been caught
        moved_s = max(moved_s, float(c.main_cpu_moved_s[r]), float(c.frames_moved_s[r]))
    return last if (last.returned_s or 0.0) >= moved_s - 1.0 else None


def _dead_in(state: JobState, detail: Detail) -> Iterator[Operation]:
    """Where a dead rank's death is a consequence of a wait, that wait."""
    ending = detail.ending if detail.ending is not None and detail.ending.what in _ENDS else None
    at_s = ending.at_s if ending is not None and ending.at_s else detail.exit.at_s if detail.exit else state.now_s
    blocking = [op for op in detail.operations if op.blocking and op.name not in NOT_WAITS]
    if ending is not None:  # the main thread came to its end, so only what it was in itself can have ended it
        blocking = [op for op in blocking if op.thread == detail.pid]
    if blocking:
        yield from _by_thread(detail, blocking)
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
    elif (broken := _broke_in_backward(state, detail)) is not None:
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


_OWN_ERRORS = frozenset(
    {"TypeError", "ValueError", "AttributeError", "IndexError", "NotImplementedError", "AssertionError"}
)
OWN_SOCKET = ("failed to listen", "EADDRINUSE", "ddress already in use")  # of a store or listener of the rank's own
_AT_ONCE_S = 0.05
_ENDS = ("exception", "exit", "shutdown")
BACKEND_WORDS = ("gloo/transport", "[gloo", "NCCL", "ProcessGroup", "c10d")
_NETWORK_WORDS = ("Connection closed by peer", "Connection reset", "Timed out", "Broken pipe")  # anyone's
_SAID = (*BACKEND_WORDS, *_NETWORK_WORDS, "onnection refused", "monitoredBarrier", "imeout", "imed out", "aborted")


def _raised_in_backend(detail: Detail) -> bool:
    """An exception of the communication library that came out of C++ (backward), not out of a wrapped call."""
    ending = detail.ending
    if ending is None or not ending.raised:
        return False
    inside = not ending.frames or _communicates(ending.frames[0])
    said = (*BACKEND_WORDS, *_NETWORK_WORDS) if inside else BACKEND_WORDS
    return any(word in ending.message for word in said)


def _broke_in_backward(state: JobState, detail: Detail) -> Operation | None:
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


def outside(state: JobState, rank: int) -> bool:
    """Whether the rank runs or rests outside communication (and has not ended)."""
    return not state.status(rank).gone and not waits_of(state, rank)


def is_stopped(state: JobState, rank: int) -> bool:
    """Whether the rank's process is stopped by a signal or a debugger, or frozen with its cgroup."""
    stack = state.detail(rank).stack
    frozen = stack is not None and ("freezer" in stack.wchan or "refrigerator" in stack.wchan)
    return state.status(rank) == Status.STOPPED or frozen
