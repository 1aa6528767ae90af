"""Stand-ins for what surrounds an aggregator: ranks that are made up, a judge that is told what to find."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from diagd.daemon.aggregator.judging import Judge
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Location, Severity
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Facts, Frame, Status
from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.tensors import LedgerNews
from diagd.probes.box.requests import Request
from diagd.proto.v1.agent_pb2 import Command

FIX = {
    "action": "Answer the read.",
    "expected": "The step goes on.",
    "verify": "diagd status shows a new step.",
    "if_not": "Look at the file server.",
}


def incident(
    id: str = "001-abc",
    *,
    kind: str = "hang.rank_blocked",
    severity: Severity = Severity.CRITICAL,
    ranks: tuple[int, ...] = (1,),
    opened_s: float = 100.0,
    waiting_ranks: tuple[int, ...] = (0, 2),
) -> Incident:
    """An incident as the book makes one."""
    evidence = (Evidence("rank 1 has been in read() for 12 s", "kernel", 1, 25),)
    return Incident(
        id=id,
        kind=kind,
        severity=severity,
        opened_s=opened_s,
        ranks=ranks,
        summary="rank 1 is blocked in read().",
        causes=(Cause("read", "it waits for a file", 0.9, Basis.OBSERVATION, evidence),),
        fixes=(FIX,),
        waiting_ranks=waiting_ranks,
        group="0",
        op_name="ALLREDUCE",
        op_seq=31,
        step=25,
        locations=(Location(1, Frame("load", "/src/data.py", 41)),),
        peak_severity=severity,
        fingerprint="f00",
        key="blocked|1",
    )


@dataclass(frozen=True)
class Wanted:
    """Ranks to look at."""

    stacks: tuple[int, ...] = ()
    recorder: tuple[int, ...] = ()
    history: tuple[int, ...] = ()


class FakeBook:
    """Opens what the judge finds: findings are incidents here."""

    def __init__(self, restored: Sequence[Incident]) -> None:
        self.incidents: list[Incident] = list(restored)
        self._seen = {i.id: (i.severity, i.resolved_s) for i in restored}
        self.unsure = False

    def update(self, findings: Iterable[Incident], state: JobState) -> list[Incident]:
        changed = []
        for found in findings:
            mark = (found.severity, found.resolved_s)
            if self._seen.get(found.id) != mark:
                self._seen[found.id] = mark
                if all(i.id != found.id for i in self.incidents):
                    self.incidents.append(found)
                changed.append(found)
        return changed


@dataclass
class FakeJudge:
    """Says what a test sets."""

    findings: list[Incident] = field(default_factory=list)
    wanted: Wanted = Wanted()

    def make(self) -> Judge:
        return Judge(lambda state: tuple(self.findings), lambda state: self.wanted, FakeBook)


@dataclass
class FakeLink:
    """A way to an agent that notes what it is told."""

    node: str = "n1"
    sent: list[Command] = field(default_factory=list)

    def command(self, command: Command) -> None:
        self.sent.append(command)


def rank_facts(rank: int, **changes: object) -> Facts:
    """A rank that trains."""
    now_s = time.time()
    values: dict[str, object] = {
        "pid": 1000 + rank,
        "step": 7,
        "step_s": now_s - 1,
        "phase": "forward",
        "phase_s": now_s - 0.5,
        "heartbeat_s": now_s,
        "operations": 20,
        "rss_bytes": 1 << 28,
    }
    return Facts(rank, **{**values, **changes})  # type: ignore[arg-type]


class FakeObserver:
    """Ranks of which a test says how they are."""

    notes: tuple[str, ...] = ()

    def __init__(self, ranks: int = 2) -> None:
        self.facts = {rank: rank_facts(rank) for rank in range(ranks)}
        self.found = {rank: Detail(rank, host="h", node="n1", pid=1000 + rank) for rank in range(ranks)}
        self.deep_looks: list[tuple[tuple[int, ...], bool, bool, bool]] = []
        self.looks = self.glances = 0
        self.all_get_on = True
        self.asked: list[tuple[int, int, Request]] = []

    def ask(self, rank: int, pid: int, request: Request) -> None:
        if rank not in self.facts:
            raise ValueError(f"rank {rank} has no ledger")
        self.asked.append((rank, pid, request))

    def ledgers(self, anew: bool) -> list[LedgerNews]:
        return []

    def signals(self, anew: bool) -> list[SignalNews]:
        return []

    def undisturbed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def look(self, now_s: float) -> list[Facts]:
        self.looks += 1
        return list(self.facts.values())

    def gets_on(self) -> bool:
        self.glances += 1
        return self.all_get_on

    def details(self, ranks: Iterable[int]) -> list[Detail]:
        return [self.found[rank] for rank in ranks if rank in self.found]

    def deep(
        self, ranks: Iterable[int], stacks: bool = True, recorder: bool = True, history: bool = True
    ) -> list[Detail]:
        chosen = tuple(ranks)
        self.deep_looks.append((chosen, stacks, recorder, history))
        return self.details(chosen)

    def end(self, rank: int, status: Status = Status.EXITED) -> None:
        self.facts[rank].status = status


def wait_for(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.01)
