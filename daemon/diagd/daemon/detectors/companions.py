"""What of a rank's own, beside its main thread, may be what that waits for: its other threads, and its children."""

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Evidence
from diagd.daemon.state.model import Child, Detail, Thread

SHOWN = 3
FOR_A_CHILD = frozenset({"wait4", "waitid"})
FROM_A_CHILD = FOR_A_CHILD | {"read", "poll", "select", "ppoll", "pselect6"}  # its end, or what it prints
COMMAND = 60  # characters
_OF_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "compile_worker")
LOCK = "waits for a lock"
_FOR_ITS_CHILD = ", for its child"


def works_beside(detail: Detail) -> bool:
    """Whether something of the rank's own runs beside its main thread, which may do what others wait for."""
    return bool(_threads(detail) or [child for child in _children(detail) if not _serves_python(child)])


def _serves_python(child: Child) -> bool:
    return any(name in child.command for name in _OF_PYTHON)


def awaited(detail: Detail, how: str) -> str:
    """In words, who it is that a rank waits for which rests so; empty where several could be, or none is seen."""
    stack = detail.stack
    if stack is not None and stack.syscall in FOR_A_CHILD and 0 < len(children := _children(detail)) <= SHOWN:
        # Of several, most often one has started the others.
        which = "child" if len(children) == 1 else "children"
        return f"{_FOR_ITS_CHILD}{which.removeprefix('child')} {' and '.join(map(_child_text, children))},"
    if how == LOCK and len(threads := _threads(detail)) == 1:
        return f" while {_thread_text(threads[0])},"
    return ""


def key_of(said: str) -> str:
    """The catalog's key of a cause with these words; empty where they name nobody."""
    return ("child" if said.startswith(_FOR_ITS_CHILD) else "companion") if said else ""


def evidence(detail: Detail, how: str) -> tuple[Evidence, ...]:
    """Its threads in the script's own code where it waits for a lock; its children where it waits for one."""
    stack = detail.stack
    found = []
    if how == LOCK:
        found += [Evidence(_thread_text(thread), "stack", detail.rank) for thread in _threads(detail)]
    if stack is not None and stack.syscall in FROM_A_CHILD:
        found += [Evidence(f"its child {_child_text(one)} has not ended", "kernel", detail.rank)
                  for one in _children(detail)]  # fmt: skip
    return tuple(found[:SHOWN])


def _threads(detail: Detail) -> list[Thread]:
    stack = detail.stack
    return [one for one in stack.threads if one is not stack.main and one.user_frames] if stack is not None else []


def _thread_text(thread: Thread) -> str:
    name = f"its thread {thread.name!r}" if thread.name else f"a thread of it ({thread.tid})"
    return f"{name} is in {words.place_text(thread.user_frames[0])}"


def _children(detail: Detail) -> list[Child]:
    return [one for one in detail.children if not one.in_data_loader and not one.exit and one.state != "Z"]


def _child_text(child: Child) -> str:
    return f"{child.pid} ({words.shortened(child.command, COMMAND)})" if child.command else str(child.pid)
