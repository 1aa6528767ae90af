"""One job's state: facts and details in, arrays over ranks out. No clock, no I/O; time is an argument."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from diagd.daemon.state.columns import NEVER, Columns, empty_columns
from diagd.daemon.state.ledger import TensorLedger
from diagd.daemon.state.model import GROWTH, MARK_S, Detail, Facts, Status
from diagd.daemon.state.pace import Pace
from diagd.daemon.state.signals import SignalBook

OTHERS = -1  # no rank: in `not_known`, members of a group that no dump names
MEMORY = "memory/"  # of Facts.extra
LOOK_HOLDS_S = 1.0  # a look and the numbers that say the rank has moved are that far apart at most


@dataclass(slots=True)
class JobState:
    """What is known of one job at `now_s`."""

    job_id: str = ""
    command: tuple[str, ...] = ()
    started_s: float = 0.0
    hang_after_s: float = 60.0
    now_s: float = 0.0
    world_size: int = 0
    attempt: int = 0
    ended_s: float | None = None
    exit_code: int | None = None
    failures: int = 0  # detectors that could not judge it, a fault of diagd's own
    stopping_s: float | None = None  # since when diagd or a person is ending the job: deaths after that are wanted
    columns: Columns = field(default_factory=lambda: empty_columns(0))
    phases: list[str] = field(default_factory=list)
    main_states: list[str] = field(default_factory=list)
    details: dict[int, Detail] = field(default_factory=dict)
    read_s: dict[int, float] = field(default_factory=dict)  # when each rank's detail was read
    paces: dict[int, Pace] = field(default_factory=dict)
    tensors: TensorLedger = field(default_factory=TensorLedger)
    signals: SignalBook = field(default_factory=SignalBook)
    candidates: dict[int, Detail] = field(default_factory=dict)  # RANK is set, init_process_group never entered
    metric_names: Mapping[str, str] = field(default_factory=dict)  # the user's own: as logged -> canonical
    # Known from dumps alone: each rank as it was at one moment, without a clock, signs of life or a second look.
    from_dumps: bool = False
    # What training computes changes slowly: how long what was found in it stands while the job runs, in seconds, and
    # when it was looked at last, with what was found.
    look_again_s: float = 0.0
    looked: tuple[float, list[Any]] | None = None
    # The attempt in which ranks were found to have left the others' way while the job ran on, and who: it stays so.
    strayed: tuple[int, tuple[Any, ...]] | None = None
    # (group, rank) -> why it is not known what the rank has entered there; group "" for all. Only with dumps.
    not_known: dict[tuple[str, int], str] = field(default_factory=dict)

    def ranks(self) -> list[int]:
        """The ranks that have reported."""
        return [int(r) for r in np.flatnonzero(self.columns.known)]

    def processes(self) -> dict[int, Detail]:
        """Ranks, and processes that were to become one, by rank."""
        return {**self.candidates, **self.details}

    def detail(self, rank: int) -> Detail:
        """What is known beyond the arrays; an empty one where nothing is."""
        return self.details.get(rank) or Detail(rank)

    def why_not_known(self, rank: int, group: str = "") -> str:
        """Why it is not known what the rank has entered; empty where it is."""
        return self.not_known.get(("", rank)) or self.not_known.get((group, rank), "")

    def has_unnamed(self, group: str) -> bool:
        """Whether the group may have members that no dump names."""
        return (group, OTHERS) in self.not_known

    def status(self, rank: int) -> Status:
        """The rank's status; LOST where it has never reported."""
        known = rank < len(self.columns.known) and self.columns.known[rank]
        return Status(int(self.columns.status[rank])) if known else Status.LOST

    def tick(self, now_s: float) -> None:
        """Let time pass."""
        self.now_s = max(self.now_s, now_s)

    def apply(self, facts: Sequence[Facts], details: Iterable[Detail], now_s: float) -> None:
        """Take one agent's report of some ranks, made at `now_s`."""
        self.tick(now_s)
        for fact in facts:
            self._apply_facts(fact, now_s)
        for detail in details:
            self._apply_detail(detail, now_s)

    def end(self, exit_code: int | None, now_s: float) -> None:
        """The launcher has ended."""
        self.tick(now_s)
        self.ended_s, self.exit_code = now_s, exit_code

    def _apply_detail(self, detail: Detail, now_s: float) -> None:
        if not detail.is_rank:
            known = self.details.get(detail.rank)
            if known is None or known.attempt < detail.attempt:  # else: a helper process that inherited RANK
                old = self.candidates.get(detail.rank)
                same = old is not None and old.pid == detail.pid
                self.candidates[detail.rank] = _merged(old, detail) if old is not None and same else detail
                self.world_size = max(self.world_size, detail.rank + 1, detail.world_size)
            return
        self.candidates.pop(detail.rank, None)
        old = self.details.get(detail.rank)
        if old is not None and (old.attempt, old.pid) != (detail.attempt, detail.pid) and detail.attempt < old.attempt:
            return  # late news of a process that was replaced
        self._grow(detail.rank)
        if detail.history:
            self.columns.history_s[detail.rank] = now_s
        if detail.history or detail.recorder or detail.stacks:
            self._pace(detail.rank, detail.pid).note_detail(detail, now_s)
        if old is not None and old.pid == detail.pid:
            detail = _merged(old, detail)
        self.details[detail.rank], self.read_s[detail.rank] = detail, now_s
        if detail.attempt > self.attempt:
            self._begin_attempt(detail)
        sizes = [len(g.ranks) for g in detail.groups]
        self.world_size = max(self.world_size, detail.rank + 1, detail.world_size, *sizes)
        self._note_looks(detail)

    def _begin_attempt(self, detail: Detail) -> None:
        """The job was started again, maybe with fewer ranks: those that do not return are no part of it."""
        self.attempt = detail.attempt
        if 0 < detail.world_size < self.world_size:
            self.world_size = detail.world_size
            for rank in [r for r in self.details if r >= detail.world_size]:
                del self.details[rank]
                self.columns.known[rank] = False

    def _pace(self, rank: int, pid: int) -> Pace:
        """The rank's pace; a new process under its number begins anew."""
        known = self.paces.get(rank)
        if known is None or known.pid != pid:
            known = self.paces[rank] = Pace(pid)
        return known

    def _note_looks(self, detail: Detail) -> None:
        """The last time at which two looks in a row differed."""
        moved = self.columns.frames_moved_s
        for (_, before), (when, after) in zip(detail.looks, detail.looks[1:], strict=False):
            if before != after:
                moved[detail.rank] = max(moved[detail.rank], when)

    def _apply_facts(self, fact: Facts, now_s: float) -> None:
        self._grow(fact.rank)
        c, r = self.columns, fact.rank
        fresh = not c.known[r] or c.pid[r] != fact.pid
        if fresh:
            self._reset(r, fact.pid, now_s)
        self._note_signs(fact, now_s, fresh)
        self._note_interval(fact)
        c.known[r], c.is_rank[r], c.pid[r], c.seen_s[r] = True, True, fact.pid, now_s
        c.status[r] = fact.status
        for name in ("step", "operations", "io_bytes", "rss_bytes", "step_s", "phase_s", "heartbeat_s", "wait_s"):
            getattr(c, name)[r] = getattr(fact, name)
        for name in ("main_cpu_s", "other_cpu_s", "children_cpu_s", "overhead_s", "said_s"):
            getattr(c, name)[r] = getattr(fact, name)
        self.phases[r], self.main_states[r] = fact.phase, fact.main_state
        if fact.extra:
            self._pace(r, fact.pid).note(fact, now_s)
            self._note_memory(fact)
        self.world_size = max(self.world_size, r + 1)

    def _note_memory(self, fact: Facts) -> None:
        """What the agent sees of its memory stands beside what the rank itself tells of it."""
        for name, value in fact.extra.items():
            if name.startswith(MEMORY) and (value > 0 or name != f"{MEMORY}rss"):  # of a process that has ended
                self.signals.put(fact.rank, name, [max(fact.step, 0)], [value])

    def _note_signs(self, fact: Facts, now_s: float, fresh: bool) -> None:
        c, r = self.columns, fact.rank
        moved = {
            "program_moved_s": (fact.step, fact.operations, fact.phase_s) != (c.step[r], c.operations[r], c.phase_s[r]),
        }
        for total, (sign, rate, amount) in GROWTH.items():
            moved[sign] = self._grew(r, total, getattr(fact, total), now_s, rate, amount, fresh)
        for name, yes in moved.items():
            if yes or fresh:
                getattr(c, name)[r] = now_s
        if fresh:  # its box tells what was before anybody watched
            c.program_moved_s[r] = min(max(fact.step_s, fact.phase_s) or now_s, now_s)
        if moved["program_moved_s"]:
            self._forget_looks(r, now_s)

    def _forget_looks(self, rank: int, now_s: float) -> None:
        """What a close look saw holds only until the rank goes on."""
        detail = self.details.get(rank)
        if detail is not None and (detail.stacks or detail.recorder):
            seen_s = max((s.taken_s for s in detail.stacks), default=0.0)
            if seen_s < now_s - LOOK_HOLDS_S:
                self.details[rank] = detail.with_(stacks=(), recorder=(), looks=())

    def _grew(self, rank: int, total: str, value: float, now_s: float, rate: float, amount: float, fresh: bool) -> bool:
        """Whether a total has grown by more than noise since its mark."""
        mark, marked_s = getattr(self.columns, f"{total}_mark"), getattr(self.columns, f"{total}_marked_s")
        waited_s = now_s - marked_s[rank]
        grew = value - mark[rank] > rate * waited_s + amount
        if fresh or grew or waited_s > MARK_S:
            mark[rank], marked_s[rank] = value, now_s
        return bool(grew)

    def _note_interval(self, fact: Facts) -> None:
        """Smooth the time between steps; the first step is left out, since it compiles and allocates."""
        c, r = self.columns, fact.rank
        steps, passed_s = fact.step - c.step[r], fact.step_s - c.step_s[r]
        if c.step[r] < 1 or steps <= 0 or passed_s <= 0:
            return
        new, old = passed_s / steps, c.step_interval_s[r]
        c.step_interval_s[r] = new if old == NEVER else 0.7 * old + 0.3 * new

    def _reset(self, rank: int, pid: int, now_s: float) -> None:
        """A new process under this number: nothing of the old one counts."""
        for name in Columns.__slots__:
            column = getattr(self.columns, name)
            column[rank] = now_s if name.endswith("moved_s") else 0
        self.columns.seen_s[rank] = self.columns.first_s[rank] = now_s
        self.columns.step[rank] = -1
        self.columns.step_interval_s[rank] = NEVER
        self.details.pop(rank, None)
        self.signals.begin(rank, pid)

    def _grow(self, rank: int) -> None:
        size = len(self.columns.known)
        if rank < size:
            return
        bigger = empty_columns(max(rank + 1, size * 2, 8))
        for name in Columns.__slots__:
            getattr(bigger, name)[:size] = getattr(self.columns, name)
        self.columns = bigger
        self.phases += ["init"] * (len(bigger.known) - len(self.phases))
        self.main_states += ["S"] * (len(bigger.known) - len(self.main_states))


def _merged(old: Detail, new: Detail) -> Detail:
    """The newer detail, with what only a deeper look had carried over."""
    kept: dict[str, object] = {}
    for name in ("history", "recorder", "stacks", "looks", "children", "rss_history", "groups"):
        if not getattr(new, name) and getattr(old, name):
            kept[name] = getattr(old, name)
    for name in ("ending", "thread_ended", "exit", "memory_limit_bytes", "in_shutdown_s"):
        if getattr(new, name) is None and getattr(old, name) is not None:
            kept[name] = getattr(old, name)
    return new.with_(**kept) if kept else new
