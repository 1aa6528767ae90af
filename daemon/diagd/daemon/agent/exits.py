"""How processes end that are not our children.

Three witnesses, best first: the kernel through a pidfd (exit information from Linux 6.15 on, before that the zombie's
/proc/PID/stat while the launcher has not yet taken it), and the lines that the launcher's own wait() left in PID.exits.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diagd.daemon.agent import cgroup
from diagd.daemon.agent.cgroup import Cgroups
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.state.model import Exit

_PIDFD_INFO = struct.Struct("<QQ11Ii")  # struct pidfd_info, first published size
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11
_WALL_CLOCK_NS = 10**18
_REAPED_WITHIN_S = 1.0  # how long to wait for the launcher to take its child, where only then the kernel tells


class ExitWatch:
    """Notes how each watched process ends, at the moment it does: a zombie may be gone a millisecond later."""

    def __init__(self, proc: Procfs, cgroups: Cgroups, now_s: Callable[[], float] = time.time) -> None:
        self._proc = proc
        self._cgroups = cgroups
        self._now_s = now_s
        self._lock = threading.Lock()
        self._fds: dict[int, int] = {}  # pidfd -> pid
        self._counters: dict[int, Path | None] = {}
        self._killed_for_memory: dict[Path, int] = {}  # counter -> kills already put down to some process
        self._exits: dict[int, Exit] = {}
        self._poll = select.epoll()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._wake_read, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="diagd-exits", daemon=True)
        self._thread.start()

    def watch(self, pid: int) -> None:
        """Begin to watch a process, early: how it ended cannot be asked afterwards."""
        counter = self._cgroups.kill_counter(pid)
        with self._lock:
            self._exits.pop(pid, None)  # of an earlier process with this number
            self._counters[pid] = counter
            if counter is not None and counter not in self._killed_for_memory:
                self._killed_for_memory[counter] = cgroup.kills(counter) or 0
        with contextlib.suppress(OSError):  # already gone, or a kernel without pidfd (before 5.3)
            fd = os.pidfd_open(pid)
            with self._lock:
                self._fds[fd] = pid
            self._poll.register(fd, select.EPOLLIN)

    def exit_of(self, pid: int) -> Exit | None:
        """How the process ended; None where it has not, or nobody saw how."""
        with self._lock:
            return self._exits.get(pid)

    def heard(self, pid: int, status: int, at_s: float) -> None:
        """Take what another witness says of a process: its wait status."""
        with self._lock:
            known = self._exits.get(pid)
        if known is None or not known.seen_by:
            self._note(pid, _exit(_returncode(status), at_s, "launcher"))

    def close(self) -> None:
        """End the watching thread and let go of all descriptors."""
        os.write(self._wake_write, b"x")
        self._thread.join()
        for fd in (*self._fds, self._wake_read, self._wake_write):
            os.close(fd)
        self._poll.close()

    def _run(self) -> None:
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._wake_read:
                    return
                self._ended(fd)

    def _ended(self, fd: int) -> None:
        """Take the exit status; where neither source has it yet, look again until the launcher takes its child."""
        pid, at_s = self._fds[fd], self._now_s()
        deadline = time.monotonic() + _REAPED_WITHIN_S
        while (status := self._status(fd, pid)) is None and time.monotonic() < deadline:
            if self._proc.stat(pid) is None and _exit_info(fd) is None:
                break  # taken, and this kernel does not tell
            time.sleep(0.005)
        with self._lock:
            del self._fds[fd]
        self._poll.unregister(fd)
        os.close(fd)
        if status is not None:
            self._note(pid, _exit(_returncode(status), at_s, "kernel"))

    def _status(self, fd: int, pid: int) -> int | None:
        stat = self._proc.stat(pid)
        if stat is not None and stat.state in "ZX":
            return stat.exit_code
        return _exit_info(fd)

    def _note(self, pid: int, found: Exit) -> None:
        with self._lock:
            if found.signal == "SIGKILL" and self._killed_by_kernel(pid):
                found = Exit(found.at_s, found.code, found.signal, True, found.seen_by)
            self._exits[pid] = found

    def _killed_by_kernel(self, pid: int) -> bool:
        """Whether the cgroup counts a kill that is not yet put down to another process."""
        counter = self._counters.get(pid)
        count = cgroup.kills(counter)
        if counter is None or count is None or count <= self._killed_for_memory.get(counter, count):
            return False
        self._killed_for_memory[counter] += 1
        return True


class LauncherWitness:
    """Reads the PID.exits files of a run directory, each line once."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._read_to: dict[str, int] = {}

    def news(self, names: list[str]) -> list[tuple[int, int, float]]:
        """(pid, wait status, Unix time) of what was added to these files since the last call."""
        found = []
        for name in names:
            for line in self._new_lines(name):
                if (parsed := _parsed(line)) is not None:
                    found.append(parsed)
        return found

    def _new_lines(self, name: str) -> list[bytes]:
        path, start = self._run_dir / name, self._read_to.get(name, 0)
        try:
            if path.stat().st_size <= start:
                return []
            with path.open("rb") as file:
                file.seek(start)
                whole, newline, _ = file.read().rpartition(b"\n")  # a line without its end is still being written
        except OSError:
            return []
        self._read_to[name] = start + len(whole) + len(newline)
        return whole.splitlines()


def _parsed(line: bytes) -> tuple[int, int, float] | None:
    try:
        entry: Any = json.loads(line)
        return int(entry["pid"]), int(entry["status"]), _unix_s(int(entry.get("at_ns") or 0))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _unix_s(at_ns: int) -> float:
    """A time of this machine, by CLOCK_MONOTONIC (its years of uptime tell it apart) or by the wall clock."""
    if at_ns > _WALL_CLOCK_NS:
        return at_ns / 1e9
    return time.time() - (time.monotonic_ns() - at_ns) / 1e9


def _returncode(status: int) -> int:
    """A wait status as subprocess would give it: the exit code, or the signal below zero."""
    if status < 0:
        return status
    return -(status & 0x7F) or status >> 8 & 0xFF


def _exit_info(fd: int) -> int | None:
    """The wait status that the kernel keeps with a pidfd; None before the process was reaped, or on older kernels."""
    buffer = bytearray(_PIDFD_INFO.size)
    _PIDFD_INFO.pack_into(buffer, 0, _PIDFD_INFO_EXIT, *(0,) * 13)
    try:
        fcntl.ioctl(fd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    fields = _PIDFD_INFO.unpack(buffer)
    return int(fields[-1]) if fields[0] & _PIDFD_INFO_EXIT else None


def _exit(returncode: int, at_s: float, seen_by: str) -> Exit:
    return Exit(at_s, None if returncode < 0 else returncode, signal_name(-returncode), False, seen_by)


def signal_name(number: int) -> str:
    """SIGKILL for 9; empty for what is no signal."""
    if number <= 0:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
