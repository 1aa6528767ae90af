"""What a process uses, cheaply, look after look: CPU of its main and other threads, I/O, memory, its children.

diagd's own thread in the rank is left out, and so is what a look itself makes the rank do (answer the worker server,
write its stack), or the onlooker would take its own noise for progress.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from diagd.daemon.agent.exits import signal_name
from diagd.daemon.agent.procfs import Procfs, Stat
from diagd.daemon.state.model import Child

OWN_THREAD = "diagd"
GONE = "gone"  # of a child: it ended, nobody saw how
DATA_WORKER = "pt_data_worker"  # the name that torch gives the main thread of its workers
_THREADS_EVERY_S = 10.0  # until it is found, diagd's thread is looked for this often
_ENDED_CHILDREN = 32
CHILD_STACK_S = 0.05  # of CPU, to write one's stack: milliseconds, where it is asked to


class Usage(NamedTuple):
    """Totals since the process began."""

    main_cpu_s: float = 0.0
    other_cpu_s: float = 0.0
    children_cpu_s: float = 0.0
    io_bytes: int = 0
    written_bytes: int = 0  # by the main thread

    def minus(self, other: "Usage") -> "Usage":
        """Each number less the other's."""
        return Usage(
            self.main_cpu_s - other.main_cpu_s,
            self.other_cpu_s - other.other_cpu_s,
            self.children_cpu_s - other.children_cpu_s,
            self.io_bytes - other.io_bytes,
            self.written_bytes - other.written_bytes,
        )

    def plus(self, other: "Usage") -> "Usage":
        """Each number with the other's."""
        return self.minus(NOTHING.minus(other))

    def at_least(self, other: "Usage") -> "Usage":
        """The larger of each number."""
        return Usage(
            max(self.main_cpu_s, other.main_cpu_s),
            max(self.other_cpu_s, other.other_cpu_s),
            max(self.children_cpu_s, other.children_cpu_s),
            max(self.io_bytes, other.io_bytes),
            max(self.written_bytes, other.written_bytes),
        )


NOTHING = Usage()


@dataclass(slots=True)
class ChildSample:
    """The last that was seen of a child."""

    stat: Stat
    io_bytes: int = 0
    command: str = ""
    exit: str = ""

    @property
    def is_data_worker(self) -> bool:
        """Whether torch named it so; older torches do not, and only the stack tells."""
        return self.stat.name.startswith(DATA_WORKER)


@dataclass(slots=True)
class Meter:
    """One process's usage; its totals never fall, so equal totals mean that nothing happened."""

    pid: int
    proc: Procfs
    children: dict[int, ChildSample] = field(default_factory=dict)
    _last: Usage = NOTHING
    _discount: Usage = NOTHING
    _paused: Usage | None = None  # the raw reading at its beginning
    _own_thread: int = 0
    _threads_at_s: float = -1e9

    def read(self, stat: Stat, now_s: float) -> Usage:
        """Totals as of now; the children's as of their last refresh."""
        if self._paused is not None:
            return self._last
        self._last = self.raw(stat, now_s).minus(self._discount).at_least(self._last)
        return self._last

    def pause(self, stat: Stat, now_s: float) -> None:
        """Let the totals stand still until `go_on`."""
        self._paused = self.raw(stat, now_s)

    def go_on(self, stat: Stat | None, now_s: float) -> None:
        """Count again, without what was used since `pause`."""
        paused, self._paused = self._paused, None
        if paused is not None and stat is not None:
            self.leave_out(stat, paused, now_s)

    def leave_out(self, stat: Stat, raw_before: Usage, now_s: float) -> None:
        """Do not count what was used since a raw reading: a look at the rank caused it."""
        caused = self.raw(stat, now_s).minus(raw_before).at_least(NOTHING)
        most_s = CHILD_STACK_S * len(self.living_children())
        caused = caused._replace(children_cpu_s=min(caused.children_cpu_s, most_s))  # more is their own work
        self._discount = self._discount.plus(caused)

    def refresh_children(self, pids: list[int]) -> None:
        """Read the children, new and known; those that ended keep their last numbers."""
        for pid in {*pids, *self.living_children()}:
            self._refresh_child(pid)
        ended = [pid for pid, child in list(self.children.items()) if child.exit]
        for pid in ended[:-_ENDED_CHILDREN]:
            del self.children[pid]

    def living_children(self) -> list[int]:
        """Children that had not ended when they were last read; a late look may run beside the next one, so a copy."""
        return [pid for pid, child in list(self.children.items()) if not child.exit]

    def child_list(self, data_loaders: frozenset[int] = frozenset()) -> tuple[Child, ...]:
        """The children as plain values; `data_loaders` are those whose stacks show a data worker."""
        return tuple(self._child(pid, sample, pid in data_loaders) for pid, sample in sorted(self.children.items()))

    def raw(self, stat: Stat, now_s: float) -> Usage:
        """Totals with what looks caused still in."""
        main = self.proc.thread_cpu_s(self.pid, self.pid) or 0.0
        other = max(0.0, stat.cpu_s - main - self._own_cpu_s(now_s))
        samples = list(self.children.values())
        living = [child for child in samples if not child.exit]
        children = stat.reaped_cpu_s + sum(child.stat.cpu_s + child.stat.reaped_cpu_s for child in living)
        io = self.proc.io_bytes(self.pid) + sum(child.io_bytes for child in samples)
        return Usage(main, other, children, io, self.proc.thread_written_bytes(self.pid, self.pid))

    def _own_cpu_s(self, now_s: float) -> float:
        if not self._own_thread and now_s - self._threads_at_s >= _THREADS_EVERY_S:
            self._threads_at_s = now_s
            threads = self.proc.threads(self.pid).items()
            self._own_thread = next((tid for tid, name in threads if name == OWN_THREAD and tid != self.pid), 0)
        return (self.proc.thread_cpu_s(self.pid, self._own_thread) or 0.0) if self._own_thread else 0.0

    def _refresh_child(self, pid: int) -> None:
        known, stat = self.children.get(pid), self.proc.stat(pid)
        if stat is None or (known is not None and stat.start_ticks != known.stat.start_ticks):
            if known is not None:
                known.exit = known.exit or GONE
        elif stat.state in "ZX":
            self.children[pid] = known = known or ChildSample(stat)
            known.stat, known.exit = stat, wait_status(stat.exit_code)
        else:
            command = known.command if known else " ".join(self.proc.command(pid))[:500]
            self.children[pid] = ChildSample(stat, self.proc.io_bytes(pid), command)

    def _child(self, pid: int, sample: ChildSample, shows_loader: bool) -> Child:
        loader = shows_loader or sample.is_data_worker
        role = "worker" if loader else "child"
        stat = sample.stat
        return Child(pid, role, stat.state, stat.cpu_s, sample.command or stat.name, sample.exit, loader)


def wait_status(status: int) -> str:
    """A wait status as people read it: a signal's name or the exit code."""
    return signal_name(status & 0x7F) or str(status >> 8)
