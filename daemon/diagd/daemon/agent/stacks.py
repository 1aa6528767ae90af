"""The stack of a process: by its own faulthandler where that is armed, else from outside by py-spy."""

import ctypes
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from diagd.daemon.agent import faulthandler_text, frames, locks, permission, pyspy, readers, source
from diagd.daemon.agent.calls import Calls
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.state.model import ASKS, INPUT, WAIT, Frame, Stack, Thread

SIGNAL_WAIT_S = 0.5
LAST_STACK_S = 2.0  # between the last stack and the end: a core file may be written in between
_SETTLED_S = 0.02  # faulthandler writes in small pieces: done when the file has not grown for so long
_MOST_SAMPLES = 12
_FILE_BYTES = 256 * 1024
_STOPPED = ("T", "t")
_TGKILL = {"x86_64": 234, "aarch64": 131}
_LIBC = ctypes.CDLL(None, use_errno=True)
# Not started again after a signal handler, whatever the handler's flags (man 7 signal).
_CUT_SHORT = frozenset({
    "nanosleep", "clock_nanosleep", "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2",
    "semop", "semtimedop", "rt_sigtimedwait", "pause", "rt_sigsuspend", "io_uring_enter", "futex_waitv",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """A process whose stack is wanted."""

    pid: int
    role: str = "rank"
    signal: int = 0  # that faulthandler may be registered for; 0 none
    stacks_file: Path | None = None  # where it writes
    thread: int = 0  # native id of diagd's own thread in it; 0 in a forked child, which has none


def take(target: Target, proc: Procfs, *, wait_s: float = SIGNAL_WAIT_S) -> Stack:
    """The stacks of one process; without threads, and with a note why, where there is no way to them.

    py-spy comes first, since reading from outside is all that cannot disturb the process. faulthandler needs no
    permission, but it walks the frames of threads that may be running.
    """
    readers.wait_for(proc, target.pid)
    stat = proc.stat(target.pid)
    if stat is None or stat.state in "ZX":
        return Stack(target.pid, target.role, "Z" if stat else "X", (), time.time(), note="the process has ended")
    found: tuple[Thread, ...] = ()
    source, notes = "py-spy", []
    try:
        found = _from_outside(target.pid, proc)
    except pyspy.NoStack as exc:
        if stat.state not in _STOPPED:  # a stopped process would take the signal only once it goes on
            found, source = by_signal(target, proc, wait_s), "faulthandler"
        notes.append("" if found else str(exc))
    call = proc.call(target.pid)
    if about := proc.waits_on(target.pid, call):
        owner = locks.holder(proc, target.pid) if call.name in locks.CALLS else 0
        notes.append(f"in {call.name} on {about}" + (f", {locks.HELD}{owner}" if owner else ""))
    return Stack(
        target.pid, _role(target.role, stat.name, found), stat.state, found, time.time(), source,
        call.name, proc.wchan(target.pid), "; ".join(filter(None, notes)),
    )  # fmt: skip


def samples(pid: int, proc: Procfs, pauses: Callable[[], bool], backward_site: Frame | None) -> list[Stack]:
    """Where a running rank's main thread was during a second, most often first, and what it waited for in the kernel.

    Nothing where that cannot be seen; the kernel's word is left out while the rank `pauses` its steps to save.
    """
    tree_of, durable_of = source.trees(pid, proc), source.trees(pid, proc, source.DURABLE)
    try:
        with Calls(pid, proc, pauses) as calls:
            seen = pyspy.sample(pid)
    except pyspy.NoStack:
        return []
    now_s = time.time()
    found = [
        Stack(
            pid, "sample", "R", (Thread(pid, "MainThread", places, main=True),), now_s,
            syscall=source.makes_durable(places, durable_of), times=times,
            note=_note(places, backward_site, tree_of),
        )
        for places, times in seen[:_MOST_SAMPLES]
    ]  # fmt: skip
    return found + [replace(stack, taken_s=now_s) for stack in calls.stacks()]


def asking(stack: Stack, backward_site: Frame | None, proc: Procfs) -> Stack:
    """The same, with a note where the loop that makes the steps is asking for its next batch."""
    main = stack.main
    if main is None or not source.asks_for_input(main.frames, backward_site, source.trees(stack.pid, proc)):
        return stack
    return replace(stack, note="; ".join(filter(None, (stack.note, ASKS))))


def _note(places: tuple[Frame, ...], backward_site: Frame | None, tree_of: source.Trees) -> str:
    if source.waits_for_work(places, tree_of):
        return WAIT
    return INPUT if source.asks_for_input(places, backward_site, tree_of) else ""


def by_signal(target: Target, proc: Procfs, wait_s: float = SIGNAL_WAIT_S) -> tuple[Thread, ...]:
    """What faulthandler writes on its signal; nothing where it is not armed or does not answer in time.

    The signal is sent only to a process that catches it, as its default is to kill, and only where that process has
    the file open: a forked child inherits both, and a program started with exec neither. It goes to the main thread,
    whose frames then stand still while they are read. Where that is in a sleep or a poll, which a signal would cut
    short, it goes to diagd's own thread; where there is none, nowhere.
    """
    path = target.stacks_file
    if not target.signal or path is None or not proc.caught_signals(target.pid) >> (target.signal - 1) & 1:
        return ()
    if not proc.has_open(target.pid, path):
        return ()
    cut_short = proc.call(target.pid).name in _CUT_SHORT
    if cut_short and not target.thread:
        return ()
    try:
        if path.stat().st_size > _FILE_BYTES:  # /dev/shm may be small; the rank appends, so it goes on at the start
            os.truncate(path, 0)
        start = path.stat().st_size
        _tgkill(target.pid, target.thread if cut_short else target.pid, target.signal)
        return faulthandler_text.parse(_written_since(path, start, wait_s), target.pid)
    except OSError:  # the process or its file is gone
        return ()


def _tgkill(pid: int, thread: int, number: int) -> None:
    """Send a signal to one thread; Python has no call for it.

    Raises:
        OSError: There is no such thread, or it is not ours to signal.
    """
    call = _TGKILL.get(platform.machine())
    if call is None:
        os.kill(pid, number)
    elif _LIBC.syscall(call, pid, thread, number) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def left_behind(path: Path, pid: int, died_s: float) -> Stack | None:
    """What a process wrote of itself when a signal ended it; None where it wrote nothing then.

    A forked child's crash may stand in the file too, but not at the rank's own end.
    """
    try:
        if abs(path.stat().st_mtime - died_s) > LAST_STACK_S:
            return None
        text = path.read_text(encoding="utf-8", errors="replace")[-_FILE_BYTES:]
    except OSError:
        return None
    found = faulthandler_text.parse(text, pid)
    return Stack(pid, "rank", "X", found, died_s, "faulthandler") if found else None


def _written_since(path: Path, start: int, wait_s: float) -> str:
    """What is appended to the file, once it stops growing; empty if nothing comes in time."""
    deadline = time.monotonic() + wait_s
    size, grew_at = start, time.monotonic()
    while (now := time.monotonic()) < deadline:
        new = path.stat().st_size
        if new != size:
            size, grew_at = new, now
        elif size > start and now - grew_at >= _SETTLED_S:
            break
        time.sleep(0.004)
    if size <= start:
        return ""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size - start).decode("utf-8", "replace")


def _from_outside(pid: int, proc: Procfs) -> tuple[Thread, ...]:
    if not proc.may_trace(pid):
        raise pyspy.NoStack(permission.why_not(proc, pid))
    try:
        return pyspy.dump(pid)
    except pyspy.NoStack as exc:
        raise pyspy.NoStack(permission.why_not(proc, pid, str(exc))) from exc


def _role(role: str, name: str, threads: tuple[Thread, ...]) -> str:
    if role == "child" and (name.startswith("pt_data_worker") or any(frames.in_data_loader(t.frames) for t in threads)):
        return "worker"
    return role
