"""What the agent's tests read: /proc trees, boxes and stand-in ranks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diagd.daemon.agent.procfs import Procfs
from diagd.probes.box import layout
from diagd.probes.box.layout import Dtype, Live, Op, Reduce
from diagd.probes.box.writer import BoxWriter

STAND_IN = Path(__file__).with_name("stand_in_rank.py")
STACK_SIGNAL = signal.SIGRTMIN + 5


def process(
    proc: Path, pid: int, *, name: str = "python3", state: str = "S", parent: int = 1,
    ticks: tuple[int, ...] = (0, 0, 0, 0), start: int = 100, rss_pages: int = 10,
    exit_code: int = 0, command: tuple[str, ...] = ("python3", "train.py"),
    env: dict[str, str] | None = None, threads: dict[int, tuple[str, int]] | None = None, io: tuple[int, int] = (0, 0),
    syscall: str = "running", tracer: int = 0, caught: int = 0, cgroup: str = "",
) -> None:  # fmt: skip
    """Write a process into a /proc tree; `threads` are name and nanoseconds of CPU by thread id."""
    folder = proc / str(pid)
    fields = [state, parent, 0, 0, 0, 0, 0, 0, 0, 0, 0, *ticks, 20, 0, 1, 0, start, 0, rss_pages, *[0] * 27, exit_code]
    write(folder / "stat", f"{pid} ({name}) " + " ".join(map(str, fields)) + "\n")
    write(folder / "status", f"Name:\t{name}\nTracerPid:\t{tracer}\nSigCgt:\t{caught:016x}\nVmRSS:\t    12 kB\n")
    write(folder / "cmdline", "\0".join(command) + "\0")
    write(folder / "environ", "\0".join(f"{key}={value}" for key, value in (env or {}).items()) + "\0")
    told = f"rchar: {io[0]}\nwchar: {io[1]}\nread_bytes: 0\nwrite_bytes: 0\n"
    write(folder / "io", told)
    write(folder / "task" / str(pid) / "io", told)
    write(folder / "wchan", "0")
    write(folder / "cgroup", cgroup)
    for tid, (thread, cpu_ns) in (threads or {pid: (name, 0)}).items():
        write(folder / f"task/{tid}/comm", thread + "\n")
        write(folder / f"task/{tid}/schedstat", f"{cpu_ns} 0 0\n")
        write(folder / f"task/{tid}/syscall", syscall + "\n")


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def box(
    run_dir: Path, rank: int = 0, *, pid: int | None = None, start: int | None = None, **identity: Any
) -> BoxWriter:
    """A box as a rank writes it, of this process unless another is named."""
    pid = os.getpid() if pid is None else pid
    start = start_ticks(pid) if start is None else start
    writer = BoxWriter(run_dir / f"{pid}-{start}.box")
    layout.HEADER.pack_into(
        writer._map,
        0,
        layout.MAGIC,
        layout.VERSION,
        layout.BOX_SIZE,
        pid,
        0,
        time.monotonic_ns(),
        time.time_ns(),
        start,
    )
    facts = {"job": "j", "rank": rank, "local_rank": rank, "world_size": 4, "host": "h", "node": "n", "pid": pid}
    writer.set_text(layout.IDENTITY, {**facts, "attempt": 0, "backend": "gloo", "notes": [], **identity})
    writer.set_text(layout.GROUPS, {"groups": [{"index": 0, "name": "0", "ranks": "0-3", "description": "default_pg"}]})
    writer.live[Live.IS_RANK] = 1
    writer.live[Live.MAIN_THREAD] = pid
    writer.live[Live.HEARTBEAT_NS] = time.monotonic_ns()
    return writer


def enter_all_reduce(writer: BoxWriter, seq: int = 12) -> int:
    """Note that the calling thread enters an all-reduce of 72 floats; returns the record's index."""
    ring = writer.ring()
    assert ring is not None
    site = writer.intern("site", "/home/me/train.py\t41\tmain")
    return ring.begin(Op.ALLREDUCE, 0, 0, Dtype.FLOAT32, Reduce.SUM, -1, 0, site, 0, 72, 1, (8, 9), seq)


def start_ticks(pid: int) -> int:
    """When the kernel started a process."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])


class StandIn:
    """A process with a box that does as one word says; see stand_in_rank.py."""

    def __init__(self, run_dir: Path, rank: int, does: str, *, stdin: int = subprocess.PIPE) -> None:
        command = [sys.executable, str(STAND_IN), str(run_dir), str(rank), does]
        self.process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    @property
    def pid(self) -> int:
        return self.process.pid

    def go(self) -> None:
        """Let it begin what it is to do."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Kill it, and its children with it."""
        for pid in Procfs().descendants([self.pid])[self.pid]:
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


@contextmanager
def stand_ins(run_dir: Path, *does: str) -> Iterator[list[StandIn]]:
    """Stand-in ranks 0, 1, … that are all at work."""
    found: list[StandIn] = []
    try:
        for rank, word in enumerate(does):
            found.append(StandIn(run_dir, rank, word))
        for rank_process in found:
            rank_process.go()
        yield found
    finally:
        for rank_process in found:
            rank_process.end()


def until(condition: Callable[[], object], limit_s: float = 20.0) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)
