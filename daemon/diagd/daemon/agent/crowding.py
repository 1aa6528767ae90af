"""Who uses the CPUs that a rank's main thread may run on: other processes, or the job itself, and with what.

A thread that is ready and gets no CPU does not know who has it. The kernel counts how busy each CPU is, whoever it is
for; what of that the job's own ranks, their threads and their children have used is known of each. The rest is others'.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.agent.usage import DATA_WORKER
from diagd.daemon.state.model import Facts

EVERY_S = 0.4
MOST_CHILDREN = 64  # of a rank; what more there are use counts as others'
OTHERS, WORKERS, HELPERS, MAINS = "cpu_others_s", "cpu_workers_s", "cpu_helpers_s", "cpu_mains_s"


@dataclass(slots=True)
class _Rank:
    """One process: what it had used at the last reading, and the totals that are told of its CPUs."""

    pid: int
    main_s: float = 0.0
    other_s: float = 0.0
    children_s: dict[int, tuple[int, float]] = field(default_factory=dict)  # pid -> start, CPU
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys((OTHERS, WORKERS, HELPERS, MAINS), 0.0))


@dataclass(frozen=True, slots=True)
class _Used:
    """What one rank has used between two readings."""

    cpus: frozenset[int]
    main_s: float
    helpers_s: float
    workers_s: float

    def on(self, cpus: frozenset[int]) -> float:
        """The part of it that lay on these CPUs, as far as is known: its threads use all of theirs alike."""
        return len(self.cpus & cpus) / len(self.cpus)


class Crowding:
    """The ranks of one job on this node; totals since each of them was first read, in seconds of CPU.

    `cpu_others_s`: of processes that are not the job's; `cpu_workers_s`: of the job's data workers; `cpu_helpers_s`: of
    other children and other threads than the main ones; `cpu_mains_s`: of the other ranks' main threads. Each on the
    CPUs that the rank's main thread may run on. Nothing is told where the kernel does not say how busy CPUs are.
    """

    def __init__(self, proc: Procfs) -> None:
        self._proc = proc
        self._ranks: dict[int, _Rank] = {}
        self._busy: dict[int, float] = {}
        self._read_s = -1e9

    def note(self, facts: Sequence[Facts], children: Mapping[int, Iterable[int]], now_s: float) -> None:
        """Read again, where that is due; `children` are those of each rank that are known already."""
        if now_s - self._read_s < EVERY_S or not facts:
            return
        self._read_s = now_s
        busy, before = self._proc.cpu_busy_s(), self._busy
        used = {fact.rank: u for fact in facts if (u := self._used(fact, children.get(fact.rank, ()))) is not None}
        self._busy = busy
        for gone in self._ranks.keys() - {fact.rank for fact in facts}:
            del self._ranks[gone]
        if before and busy:
            spent = {cpu: s - before.get(cpu, s) for cpu, s in busy.items()}
            for rank, mine in used.items():
                _add(self._ranks[rank].totals, rank, mine.cpus, used, sum(spent.get(cpu, 0.0) for cpu in mine.cpus))

    def told(self, rank: int) -> dict[str, float]:
        """The totals of a rank's CPUs, as `Facts.extra` carries them."""
        return dict(self._ranks[rank].totals) if self._busy and rank in self._ranks else {}

    def _used(self, fact: Facts, children: Iterable[int]) -> _Used | None:
        known = self._ranks.get(fact.rank)
        cpus = self._proc.allowed_cpus(fact.pid)
        if known is None or known.pid != fact.pid:
            known = self._ranks[fact.rank] = _Rank(fact.pid, fact.main_cpu_s, fact.other_cpu_s)
        main_s, other_s = fact.main_cpu_s - known.main_s, fact.other_cpu_s - known.other_s
        known.main_s, known.other_s = fact.main_cpu_s, fact.other_cpu_s
        workers_s, others_s = self._of_children(known, children)
        return _Used(cpus, main_s, other_s + others_s, workers_s) if cpus else None

    def _of_children(self, known: _Rank, children: Iterable[int]) -> tuple[float, float]:
        """What its data workers and its other children have used; one that is new counts from now on."""
        workers_s = others_s = 0.0
        seen: dict[int, tuple[int, float]] = {}
        for pid in list(dict.fromkeys((*self._proc.children_of_main(known.pid), *children)))[:MOST_CHILDREN]:
            if (stat := self._proc.stat(pid)) is None or stat.state in "ZX":
                continue
            total_s = stat.cpu_s + stat.reaped_cpu_s
            start, before_s = known.children_s.get(pid, (stat.start_ticks, total_s))
            used_s = total_s - before_s if start == stat.start_ticks else 0.0
            seen[pid] = stat.start_ticks, total_s
            if stat.name.startswith(DATA_WORKER):
                workers_s += used_s
            else:
                others_s += used_s
        known.children_s = seen
        return workers_s, others_s


def _add(
    totals: dict[str, float], rank: int, cpus: frozenset[int], used: Mapping[int, _Used], spent_s: float
) -> None:  # fmt: skip
    parts = {r: one.on(cpus) for r, one in used.items()}
    own_s = used[rank].main_s
    mains_s = sum(parts[r] * one.main_s for r, one in used.items() if r != rank)
    helpers_s = sum(parts[r] * one.helpers_s for r, one in used.items())
    workers_s = sum(parts[r] * one.workers_s for r, one in used.items())
    # Not cut off at 0: ticks and exact counters differ from reading to reading, but not in the long run.
    totals[OTHERS] += spent_s - own_s - mains_s - helpers_s - workers_s
    totals[MAINS] += mains_s
    totals[HELPERS] += helpers_s
    totals[WORKERS] += workers_s
