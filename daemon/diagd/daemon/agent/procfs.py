"""Read processes from /proc: the one place that knows its formats.

Every function returns what it could read: a process may end between two reads, and that is no error here.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from diagd.daemon.agent import syscalls

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """One process, from /proc/PID/stat; the state is its main thread's."""

    name: str
    state: str
    parent: int
    cpu_s: float
    reaped_cpu_s: float  # of children that ended and were waited for
    start_ticks: int
    rss_bytes: int
    exit_code: int  # as wait() gives it; only in a zombie
    major_faults: int = 0  # pages that had to be read from disk
    disk_wait_s: float = 0.0  # waited for block devices; 0 where the kernel does not count it (task_delayacct)


class Call(NamedTuple):
    """The system call that a thread is in."""

    name: str  # empty: in none (running, or in user mode), or not readable
    arguments: tuple[int, ...] = ()


class Procfs:
    """A /proc, or a tree that looks like one."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = root
        self._prefix = f"{root}/"
        # Not every kernel has task/TID/children; without it, the parents of all processes are read.
        self._has_children_files = (root / f"self/task/{os.getpid()}/children").exists()

    def read(self, path: str) -> bytes:
        """A whole file below /proc; empty where it cannot be read."""
        return contents(self._prefix + path)

    def text(self, path: str) -> str:
        """A whole file below /proc as text."""
        return self.read(path).decode("utf-8", "replace").strip()

    def pids(self) -> list[int]:
        """All processes."""
        return [int(name) for name in listed(self._prefix) if name.isdecimal()]

    def stat(self, pid: int) -> Stat | None:
        """The process; None where there is none."""
        return parse_stat(self.read(f"{pid}/stat"))

    def status(self, pid: int) -> dict[str, str]:
        """Fields of /proc/PID/status."""
        lines = self.text(f"{pid}/status").splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def caught_signals(self, pid: int) -> int:
        """Bit mask of the signals that the process handles; signal N is bit N-1."""
        return _hex(self.status(pid).get("SigCgt", ""))

    def tracer(self, pid: int) -> int:
        """The process that traces it; 0 for none."""
        return _int(self.status(pid).get("TracerPid", ""))

    def threads(self, pid: int) -> dict[int, str]:
        """Thread ids and names."""
        tids = sorted(int(name) for name in listed(f"{self._prefix}{pid}/task"))
        return {tid: self.text(f"{pid}/task/{tid}/comm") for tid in tids}

    def thread_cpu_s(self, pid: int, tid: int) -> float | None:
        """CPU time of one thread."""
        first = self.read(f"{pid}/task/{tid}/schedstat").split(b" ", 1)[0]
        if first.isdigit():
            return int(first) / 1e9
        stat = parse_stat(self.read(f"{pid}/task/{tid}/stat"))  # kernels without CONFIG_SCHED_INFO
        return stat.cpu_s if stat else None

    def cpu_busy_s(self) -> dict[int, float]:
        """For how long each CPU has worked, for whomever; empty where the kernel does not say."""
        found: dict[int, float] = {}
        for line in self.read("stat").splitlines()[1:]:
            name, *fields = line.split()
            if not name.startswith(b"cpu"):
                break
            if name[3:].isdigit() and len(fields) > 6:  # all but idle, iowait, and what a hypervisor took
                found[int(name[3:])] = sum(int(fields[place]) for place in (0, 1, 2, 5, 6)) / TICKS_PER_S
        return found

    def allowed_cpus(self, pid: int) -> frozenset[int]:
        """The CPUs that the main thread may run on; empty where that is not known."""
        found: set[int] = set()
        words = self.read(f"{pid}/status").partition(b"Cpus_allowed_list:")[2].split(None, 1)
        for part in words[0].decode("ascii", "replace").split(",") if words else ():
            first, _, last = part.partition("-")
            if first.isdecimal():
                found.update(range(int(first), _int(last or first) + 1))
        return frozenset(found)

    def children_of_main(self, pid: int) -> list[int]:
        """The children that the main thread has started; none where the kernel does not list them."""
        return [int(child) for child in self.read(f"{pid}/task/{pid}/children").split()]

    def run_delay_s(self, pid: int) -> float:
        """For how long the main thread was ready to run and had no CPU; 0 where the kernel does not count it."""
        fields = self.read(f"{pid}/schedstat").split()
        return int(fields[1]) / 1e9 if len(fields) > 1 and fields[1].isdigit() else 0.0

    def io_bytes(self, pid: int) -> int:
        """Bytes that went through the process's read and write calls, files, pipes and terminals alike."""
        fields = self._io(pid)
        return _int(fields.get("rchar", "")) + _int(fields.get("wchar", ""))

    def written_bytes(self, pid: int) -> int:
        """Likewise, through its write calls alone."""
        return _int(self._io(pid).get("wchar", ""))

    def thread_written_bytes(self, pid: int, tid: int) -> int:
        """Likewise, of one thread of it."""
        return _int(self._io(f"{pid}/task/{tid}").get("wchar", ""))

    def _io(self, whose: int | str) -> dict[str, str]:
        return dict(line.split(": ", 1) for line in self.text(f"{whose}/io").splitlines() if ": " in line)

    def call(self, pid: int, tid: int = 0) -> Call:
        """The system call that a thread (default: the main one) is in."""
        fields = self.text(f"{pid}/task/{tid or pid}/syscall").split()
        if len(fields) < 7 or fields[0] == "-1":
            return Call("")  # "running", or stopped outside of a call
        return Call(syscalls.name(_int(fields[0])), tuple(_hex(field) for field in fields[1:7]))

    def wchan(self, pid: int) -> str:
        """Where in the kernel the main thread sleeps; empty where the kernel does not say."""
        found = self.text(f"{pid}/wchan")
        return "" if found == "0" else found

    def descriptor(self, pid: int, fd: int) -> str:
        """What a descriptor is open on: a path, "pipe:[1]", "socket:[1]", …"""
        return self._link(f"{pid}/fd/{fd}")

    def waits_on(self, pid: int, call: Call) -> str:
        """The file, pipe or socket that a call is about; empty where it is about none, or that cannot be told."""
        if not call.arguments:
            return ""
        if call.name in syscalls.ON_DESCRIPTOR:
            return self.descriptor(pid, call.arguments[0] & 0xFFFFFFFF)
        place = syscalls.PATH_ARGUMENT.get(call.name)
        return "" if place is None else self._memory_string(pid, call.arguments[place])

    def _memory_string(self, pid: int, address: int) -> str:
        """A C string in the process's memory; a page's end may cut it."""
        try:
            fd = os.open(f"{self._prefix}{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            return os.pread(fd, 4096 - address % 4096, address).split(b"\0")[0].decode("utf-8", "replace")
        except (OSError, OverflowError):
            return ""
        finally:
            os.close(fd)

    def has_open(self, pid: int, path: Path) -> bool:
        """Whether the process has that file open."""
        wanted = str(path.resolve())
        return any(self._link(f"{pid}/fd/{fd}") == wanted for fd in listed(f"{self._prefix}{pid}/fd"))

    def program(self, pid: int) -> str:
        """The file that the process runs."""
        return self._link(f"{pid}/exe")

    def _link(self, path: str) -> str:
        try:
            return os.readlink(self._prefix + path)  # noqa: PTH115 - "pipe:[1]" is no path
        except OSError:
            return ""

    def command(self, pid: int) -> list[str]:
        """The command line."""
        data = self.read(f"{pid}/cmdline").rstrip(b"\0")
        return data.decode("utf-8", "replace").split("\0") if data else []

    def environment(self, pid: int) -> dict[str, str]:
        """The environment that the process was started with."""
        entries = self.read(f"{pid}/environ").decode("utf-8", "replace").split("\0")
        return {key: value for key, equals, value in (entry.partition("=") for entry in entries) if equals}

    def may_trace(self, pid: int) -> bool:
        """Whether the kernel lets us read the process's memory, which py-spy needs."""
        try:
            os.close(os.open(f"{self._prefix}{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
        except PermissionError:
            return False
        except OSError:
            return True  # it is gone, which is no matter of permission
        return True

    def descendants(self, pids: list[int]) -> dict[int, list[int]]:
        """The children of each process, and theirs, parents before their children."""
        if self._has_children_files:
            return {pid: self._below(pid, self._children_of) for pid in pids}
        children: dict[int, list[int]] = {}
        for pid in sorted(self.pids()):
            if (stat := self.stat(pid)) is not None:
                children.setdefault(stat.parent, []).append(pid)
        return {pid: self._below(pid, lambda parent: children.get(parent, [])) for pid in pids}

    def _children_of(self, pid: int) -> list[int]:
        tids = listed(f"{self._prefix}{pid}/task")
        return sorted(int(child) for tid in tids for child in self.read(f"{pid}/task/{tid}/children").split())

    @staticmethod
    def _below(pid: int, children_of: Callable[[int], list[int]]) -> list[int]:
        found: list[int] = []
        level = [pid]
        while level and len(found) < 1000:
            level = [child for parent in level for child in children_of(parent) if child not in found]
            found += level
        return found


def contents(path: str) -> bytes:
    """A whole small file; empty where it cannot be read. At each look dozens are: Path.read_text takes five times as
    long.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def text_of(path: Path) -> str:
    """The same as text."""
    return contents(str(path)).decode("utf-8", "replace")


def listed(folder: str) -> list[str]:
    """Names in a folder; none where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def parse_stat(data: bytes) -> Stat | None:
    """What /proc/PID/stat says; the name may hold blanks and brackets, so the last bracket counts."""
    head, bracket, tail = data.rpartition(b")")
    fields = tail.split()
    if not bracket or len(fields) < 22:
        return None
    return Stat(
        name=head.partition(b"(")[2].decode("utf-8", "replace"),
        state=fields[0].decode("ascii", "replace"),
        parent=int(fields[1]),
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
        reaped_cpu_s=(int(fields[13]) + int(fields[14])) / TICKS_PER_S,
        start_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
        exit_code=int(fields[49]) if len(fields) > 49 else 0,
        major_faults=int(fields[9]),
        disk_wait_s=int(fields[39]) / TICKS_PER_S if len(fields) > 39 else 0.0,
    )


def _int(text: str) -> int:
    return int(text) if text.lstrip("-").isdecimal() else 0


def _hex(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0
