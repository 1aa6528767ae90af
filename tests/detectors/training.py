"""A training in lockstep, written down: what each rank does of its own in a step, and what follows for all of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.registry import detect
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import CALL, Detail, Facts, Frame, Group, Operation, Stack, Thread

LOOK_S = 0.5
PHASES = ("data", "forward", "backward", "optimizer", "collective", "checkpoint", "eval", "other")
Own = Callable[[int, int], dict[str, float]]  # rank, step -> seconds by phase (or by cause on the host, or "cpu")
HOST = ("garbage_s", "run_delay_s", "throttled_s", "major_faults", "disk_wait_s")
CROWD = ("cpu_others_s", "cpu_workers_s", "cpu_helpers_s", "cpu_mains_s")


def usual(rank: int, step: int) -> dict[str, float]:
    """An ordinary step of 40 ms."""
    return {"data": 0.002, "forward": 0.015, "backward": 0.02, "optimizer": 0.003, "cpu": 0.038}


@dataclass
class Rank:
    """One rank's totals."""

    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*PHASES, *HOST, "cpu"), 0.0))
    entered: list[Operation] = field(default_factory=list)
    held: dict[str, float] = field(default_factory=dict)  # where it sends and receives
    passed: list[Operation] = field(default_factory=list)  # what its box says of those
    stacks: tuple[Stack, ...] = ()
    crowd: dict[str, float] = field(default_factory=dict)


class Training:
    """`world` ranks; each step ends when the last of them has come to its operation, and that took its time."""

    def __init__(self, world: int, backend: str = "gloo") -> None:
        self.state = JobState("test")
        self.backend = backend
        self.now_s = self.state.now_s = 1_000_000.0
        self.ranks = [Rank() for _ in range(world)]
        self.groups: tuple[Group, ...] = (Group("0", tuple(range(world))),)
        self.nodes = ("",) * world
        self.step = 0
        self.crowds: list[dict[str, float]] = [{} for _ in range(world)]  # by rank: CPUs in use, by whom
        self.backward_site: Frame | None = None
        self.shutdown_s: float | None = None  # of all ranks' interpreters
        self.closely = True  # whether the operations are read, too, as is done every few seconds
        self.elements = -1  # of each operation; not known
        self._place = 0
        self._looked_s = 0.0

    def goes(self, seconds: float, own: Own = usual, collective_s: float = 0.001, buckets: int = 1) -> Self:
        """Let it train; `collective_s` is what each operation takes once all are there."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self._train_step(own, collective_s, buckets)
            if self.now_s - self._looked_s >= LOOK_S:
                self._look()
        return self

    def _train_step(self, own: Own, collective_s: float, buckets: int) -> None:
        began_s, works = self.now_s, [own(rank, self.step) for rank in range(len(self.ranks))]
        mine = [sum(s for name, s in work.items() if name in PHASES) for work in works]
        for number in range(buckets):
            self._place += 1
            for rank, placed in enumerate(self.ranks):
                at_s = began_s + mine[rank] + 1e-4 * number
                op = Operation(
                    "ALLREDUCE", "0", self._place, source="flight recorder", entered_s=at_s, numel=self.elements
                )
                placed.entered = [*placed.entered[-255:], op]
        for placed, work, own_s in zip(self.ranks, works, mine, strict=True):
            for name, s in work.items():
                placed.totals[name] += s
            placed.totals["backward"] += max(mine) - own_s + collective_s
        self.now_s = began_s + max(mine) + collective_s
        for placed, crowd in zip(self.ranks, self.crowds, strict=True):
            for name, cpus in crowd.items():
                placed.crowd[name] = placed.crowd.get(name, 0.0) + cpus * (self.now_s - began_s)
        self.step += 1

    def seen(self, rank: int, *frames: Frame, role: str = "rank", times: int = 0, **also: str) -> Self:
        """From now on a closer look finds it, or its data worker, there."""
        placed = self.ranks[rank]
        kept = tuple(s for s in placed.stacks if s.role != role)
        threads = (Thread(1, "MainThread", frames, main=True),)
        placed.stacks = (*kept, Stack(100 + rank, role, "R", threads, 0.0, times=times, **also))
        return self

    def crowded(self, *ranks: int, others: float = 0.0, workers: float = 0.0, helpers: float = 0.0,
                mains: float = 0.0) -> Self:  # fmt: skip
        """From now on it is known, who uses so many of these ranks' CPUs."""
        for rank in ranks:
            self.crowds[rank] = dict(zip(CROWD, (others, workers, helpers, mains), strict=True))
        return self

    def sleeps(self, rank: int, times: int, of: int, call: str = "fsync", file: str = "/data/journal.bin") -> Self:
        """From now on a closer look finds it in that call so often; else in none on files."""
        placed = self.ranks[rank]
        told = [Stack(100 + rank, CALL, "S", (), 0.0, "kernel", call, "", file, times)] if times else []
        told += [Stack(100 + rank, CALL, "S", (), 0.0, "kernel", times=of - times)]
        placed.stacks = (*(s for s in placed.stacks if s.role != CALL), *told)
        return self

    def _look(self) -> None:
        self._looked_s = self.now_s
        facts, details = [], []
        for rank, placed in enumerate(self.ranks):
            extra = {f"phase_s|{name}": placed.totals[name] for name in PHASES}
            extra |= {name: placed.totals[name] for name in HOST} | placed.held | placed.crowd
            facts.append(Facts(rank, pid=100 + rank, step=self.step, step_s=self.now_s, operations=self._place,
                               heartbeat_s=self.now_s, main_cpu_s=placed.totals["cpu"], extra=extra))  # fmt: skip
            stacks = tuple(replace(s, taken_s=self.now_s) for s in placed.stacks)
            groups = tuple(group for group in self.groups if rank in group.ranks)
            details.append(Detail(rank, pid=100 + rank, backend=self.backend, groups=groups, stacks=stacks,
                                  recorder=tuple(placed.entered), history=tuple(placed.passed),
                                  node=self.nodes[rank], world_size=len(self.ranks),
                                  backward_site=self.backward_site,
                                  in_shutdown_s=self.shutdown_s))  # fmt: skip
        self.state.apply(facts, details if self.closely else [], self.now_s)

    def find(self) -> tuple[Finding, ...]:
        """What the detectors say now."""
        self._look()
        return detect(self.state)

    def finds(self) -> Finding:
        """The one finding that there must be."""
        found = self.find()
        assert len(found) == 1, [(f.kind, f.ranks, f.summary) for f in found]
        return found[0]


def with_more(rank: int, phase: str, seconds: float, every: float = 1, **also: float) -> Own:
    """As usual, but for one rank, which spends more in a phase (at one of `every` steps)."""

    def own(who: int, step: int) -> dict[str, float]:
        work = usual(who, step)
        if who == rank and step % every == 0:
            work[phase] = work.get(phase, 0.0) + seconds
            work |= also
        return work

    return own


def all_with_more(phase: str, seconds: float, **also: float) -> Own:
    """As usual, but all ranks spend more in a phase."""

    def own(who: int, step: int) -> dict[str, float]:
        work = usual(who, step)
        return {**work, phase: work.get(phase, 0.0) + seconds, **also}

    return own
