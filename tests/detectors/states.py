"""Jobs as an agent reports them: a rank is placed somewhere, time passes, and the state draws its own conclusions."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any, Self

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.registry import detect
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import (
    Child,
    Detail,
    Ending,
    Exit,
    Facts,
    Frame,
    Group,
    Operation,
    Stack,
    Status,
    Thread,
)

START_S = 1_000_000.0
POLL_S = 0.5  # as the agent's
LOOK_EVERY_S = 1.0  # of stacks, on suspicion
# As where diagd was cloned, and its environment made inside: a path that says diagd is not diagd's for that.
TORCH = "/home/ml/diagd/.venv/lib/python3.11/site-packages/torch"
STDLIB = "/usr/lib/python3.11"
TRAIN = Frame("main", "/job/train.py", 80)
IN_BACKWARD = Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 824, user=False)
IN_ALL_REDUCE = Frame("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 2900, user=False)
IN_LOADER = Frame("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1251, user=False)
IN_QUEUE = Frame("poll", f"{STDLIB}/multiprocessing/connection.py", 257, user=False)
SIGNS = ("cpu", "other_cpu", "children", "io", "memory", "frames", "operations", "lines")


def at(function: str, file: str = "/job/train.py", line: int = 41) -> Frame:
    """A frame of the user's own."""
    return Frame(function, file, line)


@dataclass
class Placed:
    """One rank: what is reported of it, and what moves while time passes."""

    facts: Facts
    detail: Detail
    moves: set[str] = field(default_factory=set)
    step_s: float = 0.0  # it makes a step so often; 0 none
    looks: int = 0
    beats: bool = True
    reports: bool = True
    details: bool = True  # False: its detail is not read anew


class Job:
    """A job under watch; all methods that place a rank return the job."""

    def __init__(self, world: int, hang_after_s: float, groups: dict[str, tuple[int, ...]], warm: bool) -> None:
        self.state = JobState(job_id="job", hang_after_s=hang_after_s, started_s=START_S)
        self.now_s = START_S
        members = {"0": tuple(range(world)), **groups}
        self.ranks = {r: self._new_rank(r, members) for r in range(world)}
        if warm:
            self.train(*self.ranks, step_s=0.5).passes(4.0).rest(*self.ranks)

    def _new_rank(self, rank: int, groups: dict[str, tuple[int, ...]]) -> Placed:
        mine = tuple(Group(name, ranks, enqueued=0) for name, ranks in groups.items() if rank in ranks)
        facts = Facts(rank, pid=100 + rank, phase="forward", phase_s=self.now_s, heartbeat_s=self.now_s, step=0)
        detail = Detail(rank, local_rank=rank, host="node", node="node", pid=100 + rank, groups=mine)
        return Placed(facts, detail)

    # --- where ranks are

    def waits(self, rank: int, name: str = "ALLREDUCE", seq: int = 0, group: str = "0", **more: Any) -> Self:
        """It is inside an operation by the probe's record, since now or `since_s` seconds."""
        placed = self.ranks[rank]
        entered_s = self.now_s - more.pop("since_s", 0.0)
        more.setdefault("site", at("step", line=50))
        more.setdefault("thread", placed.detail.pid)
        op = Operation(name, "" if name.startswith(("STORE", "INIT", "NEW")) else group, seq, blocking=True,
                       entered_s=entered_s, **more)  # fmt: skip
        placed.detail = placed.detail.with_(operations=(*placed.detail.operations, op))
        if op.thread == placed.detail.pid:
            placed.facts.wait_s, placed.facts.phase, placed.facts.phase_s = entered_s, "collective", entered_s
        placed.facts.operations += 1
        return self.entered(rank, seq, group)

    def entered(self, rank: int, seq: int, group: str = "0") -> Self:
        """The backend counts so many operations of the group as issued by the rank."""
        groups = self.ranks[rank].detail.groups
        self._detail(
            rank, groups=tuple(changed(g, enqueued=max(seq, g.enqueued)) if g.name == group else g for g in groups)
        )
        return self

    def issued(self, rank: int, name: str, seq: int, group: str = "0", **more: Any) -> Self:
        """It has issued an operation and gone on: a finished one, or an asynchronous one that no one waits for."""
        op = Operation(name, group, seq, entered_s=self.now_s, **{"site": at("step", line=50), **more})
        self._detail(rank, history=(*self.ranks[rank].detail.history, op))
        return self.entered(rank, seq, group)

    def did(self, rank: int, name: str, site: Frame, seq: int = 0, **more: Any) -> Self:
        """Its main thread has finished an operation, called from there."""
        pid = self.ranks[rank].detail.pid
        at_s = more.pop("entered_s", self.now_s)
        more.setdefault("thread", pid)
        op = Operation(name, "0", seq, entered_s=at_s, returned_s=at_s, site=site, **more)
        self._detail(rank, history=(*self.ranks[rank].detail.history, op))
        return self.entered(rank, seq)

    def waits_in_backward(self, rank: int, seq: int, group: str = "0", name: str = "ALLREDUCE", **more: Any) -> Self:
        """DDP's reducer waits: the flight recorder has the entry as not retired, and the stack rests in torch."""
        entry = Operation(
            name, group, seq, source="flight recorder", entered_s=self.now_s - more.pop("since_s", 0.0),
            retired=False, **more,
        )  # fmt: skip
        self.ranks[rank].facts.phase = "backward"
        self._detail(rank, recorder=(*self.ranks[rank].detail.recorder, entry))
        return self.stack(rank, IN_BACKWARD, TRAIN).entered(rank, seq, group)

    def recorded(self, rank: int, name: str, seq: int, group: str = "0", retired: bool = True, **more: Any) -> Self:
        """The flight recorder has an entry of it."""
        entry = Operation(name, group, seq, source="flight recorder", entered_s=self.now_s, retired=retired, **more)
        self._detail(rank, recorder=(*self.ranks[rank].detail.recorder, entry))
        return self.entered(rank, seq, group)

    def sends(self, rank: int, peer: int, tag: int = 0, **more: Any) -> Self:
        return self.waits(rank, "SEND", peer=peer, tag=tag, **more)

    def receives(self, rank: int, peer: int = -1, tag: int = 0, **more: Any) -> Self:
        return self.waits(rank, "RECV", peer=peer, tag=tag, **more)

    def wants_key(self, rank: int, key: str, **more: Any) -> Self:
        return self.looked_at().waits(rank, "STORE_GET", detail=key, **more)

    def looked_at(self) -> Self:
        """Each rank's stack is known: nothing of the script's runs beside its main thread."""
        for rank, placed in self.ranks.items():
            if placed.detail.stack is None:
                self.stack(rank, at("step", line=50), TRAIN)
        return self

    def makes_store(self, rank: int, workers: int, **more: Any) -> Self:
        """It makes a TCPStore that waits for so many workers."""
        return self.looked_at().waits(rank, "STORE_JOIN", detail="127.0.0.1:4000", numel=workers, **more)

    def creates_group(self, rank: int, count: int, **more: Any) -> Self:
        """It is inside new_group, its `count`th."""
        self._detail(rank, group_count=count)
        return self.waits(rank, "NEW_GROUP", **more)

    def initialises(self, rank: int, **more: Any) -> Self:
        self._detail(rank, groups=())
        return self.waits(rank, "INIT", **more)

    def stack(self, rank: int, *frames: Frame, syscall: str = "futex", state: str = "S", note: str = "") -> Self:
        """Its main thread's stack, innermost frame first."""
        pid = self.ranks[rank].detail.pid
        main = Thread(pid, "MainThread", frames, main=True)
        others = tuple(s for s in self.ranks[rank].detail.stacks if s.role != "rank")
        own = Stack(pid, "rank", state, (main,), self.now_s, syscall=syscall, note=note)
        self._detail(rank, stacks=(own, *others))
        return self

    def outside(self, rank: int, function: str = "load", line: int = 41, phase: str = "forward", **more: Any) -> Self:
        """It rests, or works, in the user's own code."""
        self.ranks[rank].facts.phase, self.ranks[rank].facts.phase_s = phase, self.now_s
        return self.stack(rank, at(function, line=line), TRAIN, **more)

    def beside(self, rank: int, name: str, *frames: Frame) -> Self:
        """Another thread of it, where its stack has been read."""
        own, *others = self.ranks[rank].detail.stacks
        thread = Thread(own.pid + len(own.threads), name, frames)
        self._detail(rank, stacks=(changed(own, threads=(*own.threads, thread)), *others))
        return self

    def with_child(self, rank: int, command: str, pid: int, **more: Any) -> Self:
        """A process that it has started."""
        child = Child(pid, "child", **{"state": "S", "cpu_s": 0.0, "command": command, **more})
        self._detail(rank, children=(*self.ranks[rank].detail.children, child))
        return self

    def starves(self, rank: int, worker: Frame | None = None, dead: str = "") -> Self:
        """It waits for the data loader: the worker is in the user's `worker` frame, or ended with `dead`."""
        self.ranks[rank].facts.phase = "data"
        self.stack(rank, IN_QUEUE, IN_LOADER, TRAIN, syscall="poll")
        pid = 900 + rank
        child = Child(pid, "worker", "Z" if dead else "S", 1.0, exit=dead, in_data_loader=True)
        self._detail(rank, children=(child,))
        if worker is not None:
            fetch = Frame("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 54, user=False)
            inner = Thread(pid, "MainThread", (worker, fetch))
            stacks = (*self.ranks[rank].detail.stacks, Stack(pid, "worker", "S", (inner,), self.now_s))
            self._detail(rank, stacks=stacks)
        return self

    def goes_on(self, *ranks: int) -> Self:
        """Out of all operations and back in the user's code."""
        for rank in ranks:
            placed = self.ranks[rank]
            placed.detail = placed.detail.with_(operations=(), recorder=(), stacks=(), looks=())
            placed.looks = 0
            placed.facts.wait_s, placed.facts.phase, placed.facts.phase_s = 0.0, "forward", self.now_s
            placed.facts.status = Status.RUNNING
        return self

    def stopped(self, *ranks: int) -> Self:
        for rank in ranks:
            self.ranks[rank].facts.status, self.ranks[rank].facts.main_state = Status.STOPPED, "T"
            self.ranks[rank].beats = False
            self.rest(rank)
        return self

    def held_by(self, rank: int, who: str) -> Self:
        """A person holds it in a debugger."""
        self._detail(rank, debugger=who)
        return self

    def holds_gil(self, rank: int, cpu: bool = True) -> Self:
        """One call keeps the interpreter: the box's heartbeat stands still, whether or not the call computes."""
        self.ranks[rank].beats = False
        return self.works(rank, "cpu") if cpu else self

    # --- how ranks end

    def dies(
        self, rank: int, code: int | None = None, signal: str = "", ending: Ending | None = None, ago_s: float = 0.0,
        **more: Any,
    ) -> Self:  # fmt: skip
        """Its process ends; neither code nor signal where nobody saw how."""
        placed = self.ranks[rank]
        seen_by = "kernel" if signal or code is not None else ""
        end = Exit(self.now_s - ago_s, code, signal, seen_by=seen_by, **more)
        placed.facts.status = Status.KILLED if signal else Status.EXITED
        placed.detail = placed.detail.with_(exit=end, ending=ending or placed.detail.ending)
        placed.beats, placed.step_s = False, 0.0
        return self.rest(rank)

    def raises(self, rank: int, type_: str = "ValueError", message: str = "bad sample", *frames: Frame) -> Self:
        """An exception that nobody catches, and exit code 1."""
        where = frames or (at("load", line=12), TRAIN)
        return self.dies(rank, code=1, ending=Ending("exception", type_, message, 1, where, self.now_s))

    def raising(self, rank: int, type_: str) -> Self:
        """On its way out with an exception that nobody catches."""
        self._detail(rank, ending=Ending("exception", type_, "", 1, (at("load", line=12), TRAIN), self.now_s))
        return self

    def wait_raises(self, rank: int, message: str = "Connection closed by peer", ends: bool = True) -> Self:
        """Its wait ends in an exception, which ends the process."""
        placed = self.ranks[rank]
        op = placed.detail.operations[0]
        over = changed(op, blocking=False, returned_s=self.now_s, failed=f"RuntimeError: {message}")
        placed.detail = placed.detail.with_(operations=(), history=(*placed.detail.history, over))
        placed.facts.wait_s = 0.0
        return self.raises(rank, "RuntimeError", message, IN_ALL_REDUCE, TRAIN) if ends else self

    def loses_thread(self, rank: int, error: str = "KeyError", *frames: Frame, name: str = "feeder") -> Self:
        """A thread of its own ends in an exception; the process goes on."""
        end = Ending("thread", error, "lost", 1, frames or (at("fetch", line=7),), self.now_s, name)
        self._detail(rank, thread_ended=end)
        return self

    def leaves(self, rank: int, ending: Ending | None = None) -> Self:
        """The interpreter's shutdown has begun, and the process is still there."""
        self._detail(rank, in_shutdown_s=self.now_s, ending=ending or Ending("shutdown", at_s=self.now_s))
        self.ranks[rank].facts.finalizing = True
        return self

    def restarts(self, *ranks: int, attempt: int = 1) -> Self:
        """The launcher has started a new process under the same number."""
        for rank in ranks:
            old = self.ranks[rank]
            pid = old.detail.pid + 1000
            groups = tuple(changed(g, enqueued=0) for g in old.detail.groups)
            facts = Facts(rank, pid=pid, step=0, phase="forward", phase_s=self.now_s, heartbeat_s=self.now_s)
            self.ranks[rank] = Placed(facts, Detail(rank, pid=pid, attempt=attempt, groups=groups))
        return self

    # --- what moves

    def works(self, rank: int, *signs: str) -> Self:
        """These signs of life go on while time passes: cpu, other_cpu, children, io, memory, frames, operations."""
        assert set(signs) <= set(SIGNS)
        self.ranks[rank].moves |= set(signs)
        return self

    def train(self, *ranks: int, step_s: float = 0.5) -> Self:
        """They make steps."""
        for rank in ranks:
            self.ranks[rank].step_s = step_s
            self.works(rank, "cpu")
        return self

    def rest(self, *ranks: int) -> Self:
        """Nothing moves any more."""
        for rank in ranks:
            self.ranks[rank].moves.clear()
            self.ranks[rank].step_s = 0.0
        return self

    def silent(self, *ranks: int) -> Self:
        """Nothing comes of these ranks any more, or ever."""
        for rank in ranks:
            self.ranks[rank].reports = False
        return self

    def stale(self, *ranks: int) -> Self:
        """Only the numbers of these ranks are read from now on, not their details."""
        for rank in ranks:
            self.ranks[rank].details = False
        return self

    # --- time

    def passes(self, seconds: float) -> Self:
        """Let time pass; reports come now and then twice a second, the last one at the very end."""
        end_s = self.report().now_s + seconds
        while self.now_s < end_s - 1e-9:
            step_s = min(POLL_S, end_s - self.now_s)
            self.now_s += step_s
            for placed in self.ranks.values():
                self._move(placed, step_s)
            self.report()
        return self

    def report(self) -> Self:
        """One look of the agent's at all ranks."""
        seen = [p for p in self.ranks.values() if p.reports]
        facts = [changed(p.facts) for p in seen if p.detail.is_rank]
        self.state.apply(facts, [p.detail for p in seen if p.details], self.now_s)
        return self

    def _move(self, placed: Placed, seconds: float) -> None:
        facts, moves = placed.facts, placed.moves
        if placed.beats:
            facts.heartbeat_s = self.now_s
        facts.main_cpu_s += seconds if "cpu" in moves else 0.0
        facts.other_cpu_s += seconds if "other_cpu" in moves else 0.0
        facts.children_cpu_s += seconds if "children" in moves else 0.0
        facts.io_bytes += int(8e6 * seconds) if "io" in moves else 0
        facts.rss_bytes += int(64e6 * seconds) if "memory" in moves else 0
        facts.said_s = self.now_s if "lines" in moves else facts.said_s
        facts.operations += 1 if "operations" in moves else 0
        if placed.step_s and self.now_s - facts.step_s >= placed.step_s - 1e-9:
            facts.step, facts.step_s = facts.step + 1, self.now_s
        stack = placed.detail.stack
        looks = placed.detail.looks
        if stack is not None and not facts.status.gone and (not looks or self.now_s - looks[-1][0] >= LOOK_EVERY_S):
            placed.looks += 1
            digest = f"look {placed.looks}" if "frames" in moves else "same"
            stacks = tuple(changed(s, taken_s=self.now_s) for s in placed.detail.stacks)
            placed.detail = placed.detail.with_(looks=(*looks, (self.now_s, digest))[-16:], stacks=stacks)

    def _detail(self, rank: int, **changes: object) -> None:
        self.ranks[rank].detail = self.ranks[rank].detail.with_(**changes)

    # --- what is found

    def find(self) -> tuple[Finding, ...]:
        """All that the detectors say now."""
        return detect(self.report().state)

    def finds(self) -> Finding:
        """The one finding that there must be."""
        found = self.find()
        assert len(found) == 1, [(f.kind, f.ranks, f.summary) for f in found]
        return found[0]

    def kinds(self) -> set[tuple[str, tuple[int, ...], str]]:
        """Kind, culprits and severity of each finding."""
        return {(f.kind, f.ranks, f.severity.value) for f in self.find()}


def job(
    world: int = 3, hang_after_s: float = 60.0, groups: dict[str, tuple[int, ...]] | None = None, warm: bool = True
) -> Job:
    """A job of `world` ranks in group "0" and in `groups`; `warm` where steps of half a second were seen before."""
    return Job(world, hang_after_s, groups or {}, warm)


def critical(findings: Iterable[Finding]) -> list[tuple[str, tuple[int, ...]]]:
    """Kind and culprits of the findings that say that the job is stuck or dead."""
    return [(f.kind, f.ranks) for f in findings if f.severity.value == "critical"]
