"""One rank, look after look: its box, its process and how it ended, as the model's Facts and Detail."""

import hashlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from diagd.daemon.agent import boxes, frames, pyspy, readers, stacks
from diagd.daemon.agent.devices import Devices
from diagd.daemon.agent.discovery import Box
from diagd.daemon.agent.memory import MemoryMeter
from diagd.daemon.agent.pace import PaceMeter
from diagd.daemon.agent.procfs import Call, Procfs, Stat
from diagd.daemon.agent.stillness import Stillness
from diagd.daemon.agent.usage import Meter, Usage
from diagd.daemon.state.model import Detail, Exit, Facts, Frame, Operation, Stack, Status
from diagd.probes.box.layout import Live, Record

BLOCKED_AFTER_S = 2.0
LOST_AFTER_S = 2.0  # the launcher's word on an exit may come a little later than the process goes
_LOOKS = 16
_RSS_EVERY_S = 10.0
_RSS_STEP = 0.05  # a change by so much is noted between two regular points
_RSS_POINTS = 120
LAST_OPERATIONS = 256
_CPU_NOISE_S = 0.005
_GENERATIONS = 8  # of the tracer's parents
_SLEEPING = ("S", "D", "I")
UNREAD_WHILE_STOPPED = "no flight recorder: the process is stopped"


class RankWatch:
    """What is remembered of one rank's process from look to look."""

    def __init__(
        self, box: Box, proc: Procfs, memory_limit_bytes: int | None = None, cpu_stat: Path | None = None,
        memory_folders: Sequence[Path] = (), devices: Devices | None = None,
    ) -> None:  # fmt: skip
        self.box = box
        self.proc = proc
        self.pace = PaceMeter(box.pid, box.reader, proc, cpu_stat)
        self.meter = Meter(box.pid, proc)
        self.memory = MemoryMeter(box.pid, proc, memory_folders, devices)
        self.stacks: tuple[Stack, ...] = ()
        self.history: tuple[Operation, ...] = ()
        self.recorder: tuple[Operation, ...] = ()
        self.debugger = ""
        self.notes: dict[str, str] = {}  # what could not be read of this rank, by source
        self.facts = Facts(rank=box.rank, pid=box.pid)
        self.exit: Exit | None = None
        self._records: list[Record] = []
        self._looks: deque[tuple[float, str]] = deque(maxlen=_LOOKS)
        self._rss: deque[tuple[float, int]] = deque(maxlen=_RSS_POINTS)
        self._memory_limit_bytes = memory_limit_bytes
        self._gone_since_s = 0.0
        self._cpu_s = 0.0
        self._stillness = Stillness()
        self._done = (-1, -1)  # steps and operations at the last look or glance
        self._written_bytes = -1  # by the main thread; -1 before the first look
        self._wrote_s = 0.0  # when that was last seen to grow
        self._moved_s = 0.0  # when the main thread last was running or used CPU

    @property
    def pid(self) -> int:
        """The rank's process."""
        return self.box.pid

    def stat(self) -> Stat | None:
        """The rank's process, None where it has gone; a later process with the same number is another one."""
        stat = self.proc.stat(self.pid)
        if stat is None or stat.start_ticks != self.box.reader.header.start_ticks:
            return None
        if stat.state == "t" and readers.foreign_tracer(self.proc, self.pid) == 0:
            return stat._replace(state=self.facts.main_state)  # a dump reads its stack and lets it go on
        return stat

    def look(self, now_s: float, exit_seen: Exit | None) -> Facts:
        """The cheap look: a handful of reads."""
        stat = self.stat()
        self._records = self.box.reader.unfinished()
        alive = stat is not None and stat.state not in "ZX"
        usage = self.meter.read(stat, now_s) if stat is not None and alive else _usage_of(self.facts)
        if stat is not None and alive:
            self._note_progress(stat, usage, now_s)
        status = self._status(stat, exit_seen, now_s) if stat is None or not alive else self._living_status(stat, now_s)
        self.facts = self._facts(stat, status, usage)
        self._done = self.facts.step, self.facts.operations
        if not self.box.is_rank:
            self._stillness.note(self.facts, now_s)
        if stat is not None and alive:
            self.facts.extra.update(self.pace.read(stat, now_s))
            self.facts.extra.update(self.memory.read(stat, self.meter, now_s))
        return self.facts

    def gets_on(self) -> bool:
        """Whether its box shows a step or an operation since the last look or glance; its process is not asked."""
        if not self.box.is_whole:
            return False
        live = self.box.reader.live
        before, self._done = self._done, (live(Live.STEP), live(Live.OPERATIONS))
        return self._done != before and not live(Live.FINALIZING_NS)

    def waits_s(self, now_s: float) -> float:
        """For how long the rank has waited: in an operation, or with its main thread asleep."""
        since = self.facts.wait_s or (self._moved_s if self.facts.main_state in _SLEEPING else 0.0)
        return now_s - since if since else 0.0

    def note_stacks(self, stacks: Sequence[Stack], now_s: float) -> None:
        """Remember the newest stacks, and whether the main thread has moved since those before."""
        self.stacks = tuple(stacks)
        main = stacks[0].main if stacks else None
        if main is not None and main.frames:
            self._looks.append((now_s, digest(main.frames)))
        self.debugger = self._debugger()

    def unfinished(self) -> tuple[Operation, ...]:
        """The operations that had not returned at the last look."""
        return boxes.operations(self.box.reader, self._records)

    def detail(self) -> Detail:
        """All that is known beyond the numbers."""
        identity, reader = self.box.identity, self.box.reader
        loaders = frozenset(stack.pid for stack in self.stacks if stack.role == "worker")
        return Detail(
            rank=self.box.rank,
            local_rank=_int(identity.get("local_rank")),
            host=str(identity.get("host") or ""),
            node=str(identity.get("node") or identity.get("host") or ""),
            pid=self.pid,
            attempt=self.box.attempt,
            backend=str(identity.get("backend") or ""),
            is_rank=self.box.is_rank,
            groups=boxes.groups(reader),
            world_size=_int(identity.get("world_size")),
            group_count=reader.live(Live.GROUPS_BEGUN),
            operations=self.unfinished(),
            history=self.history,
            recorder=self.recorder,
            stacks=self.stacks,
            backward_site=boxes.site(reader.string(reader.live(Live.BACKWARD_SITE))),
            stale_cast_step=reader.live(Live.STALE_CAST_STEP),
            stale_cast_site=boxes.site(reader.string(reader.live(Live.STALE_CAST_SITE))),
            looks=tuple(self._looks),
            in_shutdown_s=boxes.time_s(reader, Live.FINALIZING_NS) or None,
            debugger=self.debugger,
            ending=boxes.ending(reader),
            thread_ended=boxes.thread_ended(reader),
            exit=self.exit,
            still_since_s=0.0 if self.box.is_rank else self._stillness.since_s,
            save_site=boxes.site(reader.string(reader.live(Live.SAVE_SITE))),
            saving_s=boxes.time_s(reader, Live.SAVE_NS),
            children=self.meter.child_list(loaders),
            notes=self._notes(),
            rss_history=tuple(self._rss),
            memory_limit_bytes=self._memory_limit_bytes,
        )

    def _notes(self) -> tuple[str, ...]:
        noted = self.box.identity.get("notes")
        own = (str(note) for note in noted or () if isinstance(noted, list))
        goes_on = self.facts.main_state not in "Tt"
        return (*own, *(note for note in self.notes.values() if not (goes_on and note == UNREAD_WHILE_STOPPED)))

    def _note_progress(self, stat: Stat, usage: Usage, now_s: float) -> None:
        if usage.written_bytes > self._written_bytes >= 0:
            self._wrote_s = now_s
        self._written_bytes = usage.written_bytes
        if stat.state not in _SLEEPING or usage.main_cpu_s - self._cpu_s > _CPU_NOISE_S or not self._moved_s:
            self._cpu_s, self._moved_s = usage.main_cpu_s, now_s
        last = self._rss[-1] if self._rss else None
        if last is None or now_s - last[0] >= _RSS_EVERY_S or abs(stat.rss_bytes - last[1]) > _RSS_STEP * last[1]:
            self._rss.append((now_s, stat.rss_bytes))

    def _living_status(self, stat: Stat, now_s: float) -> Status:
        self._gone_since_s = 0.0
        if stat.state in "Tt":
            return Status.STOPPED
        waits = boxes.waits_since_s(self.box.reader, self._records)
        asleep = stat.state in _SLEEPING and now_s - self._moved_s > BLOCKED_AFTER_S
        return Status.BLOCKED if asleep or (waits and now_s - waits > BLOCKED_AFTER_S) else Status.RUNNING

    def _status(self, stat: Stat | None, exit_seen: Exit | None, now_s: float) -> Status:
        """The status of a process that has ended."""
        self._gone_since_s = self._gone_since_s or now_s
        if exit_seen is not None:
            if self.exit is None:  # with its end, or it is thought not to have entered what it died in
                self.history = boxes.operations(self.box.reader, self.box.reader.history(LAST_OPERATIONS))
            if exit_seen.signal and (self.exit is None or not self.exit.signal):
                self._read_last_stack(exit_seen)
            self.exit = exit_seen
            self._forget_misses()
            return Status.KILLED if exit_seen.signal else Status.EXITED
        if now_s - self._gone_since_s < LOST_AFTER_S:
            return self.facts.status
        self.exit = self.exit or Exit(self._gone_since_s)
        left_by_itself = boxes.ending(self.box.reader) is not None or self.box.reader.live(Live.FINALIZING_NS) > 0
        return Status.EXITED if left_by_itself else Status.LOST

    def _forget_misses(self) -> None:
        """A look that came too early or too late says nothing of the run; what was never allowed does."""
        self.notes = {about: note for about, note in self.notes.items() if pyspy.NO_PERMISSION in note}

    def _read_last_stack(self, end: Exit) -> None:
        """Where it was when a signal ended it, if it has left that behind."""
        last = stacks.left_behind(self.box.path.with_name(f"{self.pid}.last"), self.pid, end.at_s)
        moved_s = max(self.facts.step_s, self.facts.phase_s)
        if last is not None:
            self.stacks = (last, *self.stacks[1:])
        elif self.stacks and self.stacks[0].taken_s < moved_s:
            self.stacks = ()  # of an earlier standstill: not where it was when it ended

    def _facts(self, stat: Stat | None, status: Status, usage: Usage) -> Facts:
        box = self.box.reader
        return Facts(
            rank=self.box.rank,
            pid=self.pid,
            status=status,
            main_state=stat.state if stat else "X",
            step=box.live(Live.STEP),
            step_s=boxes.time_s(box, Live.STEP_NS),
            phase=boxes.phase(box),
            phase_s=boxes.time_s(box, Live.PHASE_NS),
            heartbeat_s=boxes.time_s(box, Live.HEARTBEAT_NS),
            operations=box.live(Live.OPERATIONS),
            wait_s=boxes.waits_since_s(box, self._records),
            main_cpu_s=usage.main_cpu_s,
            other_cpu_s=usage.other_cpu_s,
            children_cpu_s=usage.children_cpu_s,
            io_bytes=usage.io_bytes,
            rss_bytes=(stat.rss_bytes if stat else 0) or self.facts.rss_bytes,  # a zombie has none any more
            said_s=max(self._wrote_s, boxes.time_s(box, Live.SAID_NS)),
            finalizing=box.live(Live.FINALIZING_NS) > 0,
            overhead_s=box.live(Live.OVERHEAD_NS) / 1e9,
        )

    def _debugger(self) -> str:
        """Who holds the process, where that is a person."""
        tracer = readers.foreign_tracer(self.proc, self.pid)
        if tracer and not self._is_of_job(tracer):
            return f"ptrace by {tracer}"
        main = self.stacks[0].main if self.stacks else None
        if main is not None and (held := frames.person_at(main.frames)):
            return held
        return "prompt" if _reads_terminal(self.proc, self.pid, self.proc.call(self.pid)) else ""

    def _is_of_job(self, tracer: int) -> bool:
        """Whether the rank, or the launcher that started it, has started the tracer: then no person sits there."""
        stat = self.proc.stat(self.pid)
        launcher = stat.parent if stat is not None else 0
        started = {self.pid, launcher} if self._is_python(launcher) else {self.pid}
        for _ in range(_GENERATIONS):
            stat = self.proc.stat(tracer)
            if stat is None or stat.parent <= 1:
                return False
            if stat.parent in started:
                return True
            tracer = stat.parent
        return False

    def _is_python(self, pid: int) -> bool:
        """Whether a process is a launcher, and no person's shell."""
        command = self.proc.command(pid) if pid > 1 else []
        return bool(command) and Path(command[0]).name.startswith(("python", "torchrun"))


def digest(stack: Sequence[Frame]) -> str:
    """Equal for equal places: every frame's function, file and line."""
    text = "\n".join(f"{frame.function}\t{frame.file}\t{frame.line}" for frame in stack)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _reads_terminal(proc: Procfs, pid: int, call: Call) -> bool:
    """Whether the main thread waits for a person to type: it reads descriptor 0, or selects on it alone (readline)."""
    reads = call.name == "read" and call.arguments[0] == 0
    selects = call.name in ("select", "pselect6") and call.arguments[0] == 1
    return (reads or selects) and proc.descriptor(pid, 0).startswith(("/dev/pts/", "/dev/tty", "/dev/console"))


def _usage_of(facts: Facts) -> Usage:
    return Usage(facts.main_cpu_s, facts.other_cpu_s, facts.children_cpu_s, facts.io_bytes, 0)


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
