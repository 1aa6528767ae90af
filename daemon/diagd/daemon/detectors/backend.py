"""What the backend has under way for a rank, and whether the rank rests in it."""

from diagd.daemon.state.model import Detail, Frame, Operation

# Where Python rests while C++ communicates. Elsewhere in torch (serialization, a file lock, compilation) it does not.
_COMMUNICATES = tuple(
    f"/torch/{place}" for place in ("autograd/", "distributed/", "nn/parallel/", "_ops.py", "_tensor.py")
)
CREATION = frozenset({"NEW_GROUP", "INIT"})


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


def rests_in_communication(detail: Detail) -> bool:
    """Whether the last stack shows the main thread at rest where torch communicates."""
    main = detail.stack.main if detail.stack is not None else None
    inner = next((f for f in main.frames if not f.ours), None) if main is not None else None
    return inner is not None and communicates(inner)


def communicates(frame: Frame) -> bool:
    """Whether Python rests there while C++ communicates."""
    return not frame.user and any(place in frame.file for place in _COMMUNICATES)


def by_thread(detail: Detail, blocking: list[Operation]) -> list[Operation]:
    """One operation a thread: what the store is asked for inside a group's creation is part of the creation."""
    found: dict[int, Operation] = {}
    for op in blocking:  # oldest first, so the outer call comes before the inner
        outer = found.get(op.thread)
        if outer is None or outer.name not in CREATION:
            found[op.thread] = op
    main = detail.pid  # Linux: the main thread's id is the process's
    return sorted(found.values(), key=lambda op: (op.thread != main, op.entered_s))
