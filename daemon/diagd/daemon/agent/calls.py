"""Which system calls a running rank's main thread sleeps in, looked at again and again: waits for storage show."""

import time
from collections import Counter
from collections.abc import Callable
from threading import Event, Thread
from typing import Self

from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.state.model import CALL, Stack

RATE = 50  # a second: two reads in /proc each, of some 10 microseconds
_MOST_FILES = 4
_STORAGE = frozenset({
    "read", "write", "pread64", "pwrite64", "readv", "writev", "close", "fsync", "fdatasync", "fallocate", "fstat",
    "getdents", "getdents64", "open", "openat", "openat2", "stat", "newfstatat", "statx", "rename", "renameat",
    "unlink", "unlinkat", "mkdir", "mkdirat",
})  # fmt: skip
_NO_STORAGE = ("/dev/", "/proc/", "/sys/", "/memfd:")  # kept in memory or made by the kernel; a terminal


class Calls:
    """Looks at one main thread from `with` to its end, beside whatever its caller does meanwhile.

    The kernel tells a call of a thread that sleeps in it, not of one that runs: what goes to and from the page cache
    does not show, and need not.
    """

    def __init__(self, pid: int, proc: Procfs, leave_out: Callable[[], bool] = lambda: False) -> None:
        """Look at the process; not while `leave_out` says so, as it is meant to write then (a checkpoint)."""
        self._pid = pid
        self._proc = proc
        self._leave_out = leave_out
        self._ended = Event()
        self._seen: Counter[tuple[str, str]] = Counter()
        self._thread = Thread(target=self._watch, name="diagd-calls", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """Look once."""
        if self._leave_out():
            return
        call = self._proc.call(self._pid)
        about = self._proc.waits_on(self._pid, call) if call.name in _STORAGE else ""
        self._seen[(call.name, about) if is_stored(about) else ("", "")] += 1

    def stacks(self) -> list[Stack]:
        """How often it was in which call on which file, and how often in none of these; nothing where not seen."""
        now_s = time.time()
        files = [(seen, times) for seen, times in self._seen.most_common() if seen[0]][:_MOST_FILES]
        rest = sum(self._seen.values()) - sum(times for _, times in files)
        told = [*files, (("", ""), rest)] if rest else files
        return [Stack(self._pid, CALL, "S", (), now_s, "kernel", name, "", file, n) for (name, file), n in told]

    def _watch(self) -> None:
        while not self._ended.wait(1 / RATE):
            self.look()


def is_stored(file: str) -> bool:
    """Whether this is a file or folder on storage: no pipe, socket or device, nothing that lies in memory."""
    return bool(file) and not file.startswith(_NO_STORAGE) and not (":[" in file and not file.startswith("/"))
