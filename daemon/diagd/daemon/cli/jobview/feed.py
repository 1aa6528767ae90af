"""What is read while a person looks on: the job's status again and again, and on a key stacks and dumps. On threads."""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from diagd.daemon.cli.jobview.ending import ended, last_words
from diagd.daemon.cli.jobview.snapshot import Snapshot
from diagd.daemon.cli.jobview.source import read_status

if TYPE_CHECKING:
    from diagd.daemon.agent.discovery import Job


LEAST_PAUSE_S = 0.05
CORE_SHARE = 0.04  # of one core, for looking: the machine is the job's


class News(NamedTuple):
    """Something that was read."""

    what: str  # snapshot, ending, ended, stacks, dump, progress, failed
    value: Any


class Feed:
    """Reads a job every `interval_s`; `news` holds what came, and a byte in `wake_fd` says that something did."""

    def __init__(self, job: "Job", interval_s: float, wake_fd: int) -> None:
        self.news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._job = job
        self._interval_s = interval_s
        self._wake_fd = wake_fd
        self._stop = threading.Event()
        self._busy: dict[str, threading.Thread] = {}

    def start(self) -> None:
        """Begin to read."""
        self.run("status", self._read)

    def stop(self, dump_s: float = 0.0) -> None:
        """Stop reading; wait up to `dump_s` for a dump that is being written."""
        self._stop.set()
        if dump_s > 0 and (dump := self._busy.get("dump")) is not None:
            dump.join(dump_s)

    def busy(self, name: str) -> bool:
        """Whether this is under way."""
        return (thread := self._busy.get(name)) is not None and thread.is_alive()

    def run(self, name: str, task: Callable[[], object]) -> None:
        """Do something on a thread of its own, which never keeps the program from ending."""
        if not self.busy(name):
            self._busy[name] = threading.Thread(target=self._guarded, args=(task,), name=f"top-{name}", daemon=True)
            self._busy[name].start()

    def tell(self, what: str, value: Any) -> None:
        """Hand something to the view."""
        self.news.put(News(what, value))
        with contextlib.suppress(OSError):  # the pipe is full, which wakes as well, or closed
            os.write(self._wake_fd, b"x")

    def _guarded(self, task: Callable[[], object]) -> object:
        """On a thread, an error would be a traceback across the window."""
        try:
            return task()
        except Exception as exc:  # noqa: BLE001 - whatever it is, the person still has the window and the keys
            self.tell("failed", f"{type(exc).__name__}: {exc}")
            return None

    def _read(self) -> None:
        over = None
        while not over and not self._stop.is_set():
            began, used = time.monotonic(), time.thread_time()
            over = self._guarded(self._look)
            took_s, cpu_s = time.monotonic() - began, time.thread_time() - used
            self._stop.wait(pause_s(self._interval_s, took_s, cpu_s))

    def _look(self) -> bool:
        """One look; whether it was the last."""
        self._job = _fresh(self._job)
        status = read_status(self._job)
        over = ended(self._job, status)
        if over:
            self.tell("ending", None)
            self.tell("ended", last_words(self._job, status, self._stop))
        else:
            self.tell("snapshot", Snapshot.of(status))
        return over

    def read_stacks(self, rank: int, where: str) -> None:
        """Read a rank's stacks, as a dump does."""
        self.run("stacks", lambda: self.tell("stacks", (rank, stacks_of(self._job.run_dir, rank, where))))

    def dump(self, folder: Path) -> None:
        """Dump the ranks of this machine."""
        self.run("dump", lambda: self._dump(folder))

    def _dump(self, folder: Path) -> None:
        from diagd.daemon.agent.dump import collect_dump, targets_of_run

        targets = targets_of_run(self._job.run_dir)
        if not targets:
            self.tell("dump", "no rank of this job runs on this machine: nothing to dump")
            return
        try:
            summary = collect_dump(targets, folder, lambda text: self.tell("progress", f"dumping: {text}"))
        except OSError as exc:
            self.tell("dump", f"{folder}: cannot be written: {exc.strerror}")
            return
        partial = "" if summary.complete else " (partial: summary.txt says what is missing)"
        self.tell("dump", f"dump of {len(targets)} ranks: {folder}{partial}")


def pause_s(interval_s: float, took_s: float, cpu_s: float) -> float:
    """How long to rest after a look: as asked, or longer where so many ranks would cost too much."""
    return max(interval_s - took_s, cpu_s * (1 / CORE_SHARE - 1), LEAST_PAUSE_S)


def stacks_of(run_dir: Path, rank: int, where: str) -> tuple[str, ...]:
    """The stacks of a rank of this machine and of its children; or one line that says why there are none."""
    from diagd.daemon.agent.dump import targets_of_run
    from diagd.daemon.agent.dump_parts import read_stacks, render
    from diagd.daemon.agent.procfs import Procfs

    targets = targets_of_run(run_dir, [rank])
    if not targets:
        elsewhere = f"it runs on {where}: diagd top shows them there" if where else "it left no record on this machine"
        return (f"the stacks of rank {rank} cannot be read here: {elsewhere}",)
    return tuple(render(stack) for stack in read_stacks(targets[0], Procfs()))


def _fresh(job: "Job") -> "Job":
    """With what its run file says now: a watch that was started again has another address."""
    from diagd.daemon.supervisor.runfile import read_run_file

    return replace(job, info=read_run_file(job.run_dir) or job.info)
