"""When ranks seem to hold different things: what they are asked to digest, and after which step.

First everything after one and the same step, and what is suspected in parts; then, of what differs, ever smaller parts
of those that do, until single rows are left or it is clear that they are no single place. No clock, no threads.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import Entry
from diagd.daemon.state.parts import Where, merged
from diagd.proto.v1.agent_pb2 import DigestRequest, DigestTarget

# A rank digests all it has in less time than a step takes; so often in a run at most.
MAX_SWEEPS = 3
MAX_REQUESTS = 16
BETWEEN_SWEEPS = 64  # steps at least
STILL = 128  # steps, and twice as many each time: whether what was found differs still is seen by itself, but seldom
MAX_TARGETS = 16  # of a request, as the probes take them
PARTS = 64  # of a target, likewise
MAX_TENSORS = 8  # looked at in parts after each sweep
MAX_PASSES = 4  # 64 parts, and of those that differ 64 parts again, …: single rows of 16 million
PLACE = 1 / 4  # of the parts: a difference in more of them is not narrowed down further
# Until the request is in the ranks: one look is up to half a second old, and the command has its way to go.
LEAD_S = 2.0
LEAST_LEAD = 3  # steps
MOST_LEAD = 100_000
LATER = 3  # times as far ahead, after a rank was past the step already
EXPIRES_S = 30.0  # after which what was not answered is given up, beyond three times the time to the step


@dataclass(slots=True)
class Asked:
    """What the ranks are busy with."""

    serial: int
    step: int
    until_s: float
    pids: dict[int, int]  # by rank
    everything: bool
    entries: list[tuple[Entry, Where | None]]  # whose parts were asked for, and what was known of them


@dataclass(slots=True)
class Serials:
    """The numbers of all requests to one job's ranks."""

    last: int = 0

    def following(self, now_s: float) -> int:
        """A new one; ranks may know numbers of an aggregator before this one."""
        self.last = max(self.last + 1, int(now_s))
        return self.last


@dataclass(slots=True)
class Sweeps:
    """One job's requests, one at a time."""

    serials: Serials = field(default_factory=Serials)
    sweeps: int = 0
    requests: int = 0
    asked: Asked | None = None
    _lead: float = LEAD_S
    _swept_at: int = -BETWEEN_SWEEPS
    _still: int = STILL
    _swept: set[int] = field(default_factory=set)  # entries that were suspected then, by id
    _passes: dict[int, int] = field(default_factory=dict)  # of an entry, by id

    def due(self, state: JobState, suspects: Sequence[Entry], now_s: float) -> dict[int, DigestRequest]:
        """What each rank is to digest; nothing while it is not done with what was asked before."""
        if self.asked is not None and not self._is_done(self.asked, state, now_s):
            return {}
        interval_s = step_interval_s(state)
        if not suspects or not interval_s or self.requests >= MAX_REQUESTS:
            return {}
        step, ahead = step_ahead(state, self._lead, interval_s)
        everything = self._begins_sweep(suspects, step)
        targets = self._targets(suspects)
        if not (everything or targets):
            return {}
        until_s = now_s + EXPIRES_S + 3 * ahead * interval_s
        return self._ask(state, Asked(self.serials.following(now_s), step, until_s, {}, everything, []), targets)

    def _is_done(self, asked: Asked, state: JobState, now_s: float) -> bool:
        answers = [state.tensors.answers.get(rank, (0, 0)) for rank in asked.pids]
        answered = all(serial == asked.serial for serial, _ in answers)
        if not answered and now_s < asked.until_s and not has_changed(state, asked.pids):
            return False
        self.asked = None
        if not answered or any(step != asked.step for _, step in answers):
            self._again(asked)
        return True

    def _again(self, asked: Asked) -> None:
        """A rank was past the step, or has not answered: what it was asked for is still to be done."""
        self._lead *= LATER
        if asked.everything:
            self._swept_at = -BETWEEN_SWEEPS
            self._swept.clear()
        for entry, before in asked.entries:
            if entry.where is before:
                self._passes[id(entry)] -= 1

    def _begins_sweep(self, suspects: Sequence[Entry], step: int) -> bool:
        is_new = self.sweeps < MAX_SWEEPS and any(id(entry) not in self._swept for entry in suspects)
        if step - self._swept_at < (BETWEEN_SWEEPS if is_new else self._still):
            return False
        if is_new:
            self.sweeps += 1
        else:
            self._still *= 2
        self._swept_at = step
        self._swept.update(map(id, suspects))
        return True

    def _targets(self, suspects: Iterable[Entry]) -> list[tuple[Entry, list[DigestTarget]]]:
        """Parts of the first few that can be looked at more closely; rows are still those of no rank."""
        found: list[tuple[Entry, list[DigestTarget]]] = []
        room, passes = MAX_TARGETS, self._passes
        for entry in suspects:
            spans, before = _spans(entry), passes.get(id(entry), 0)
            if not 0 < len(spans) <= room or before >= MAX_PASSES:
                continue
            if before or len(passes) < MAX_TENSORS * self.sweeps:
                room -= len(spans)
                passes[id(entry)] = before + 1
                found.append((entry, [DigestTarget(first=a, stop=b, parts=PARTS) for a, b in spans]))
        return found

    def _ask(
        self, state: JobState, asked: Asked, targets: list[tuple[Entry, list[DigestTarget]]]
    ) -> dict[int, DigestRequest]:
        self.requests, self.asked = self.requests + 1, asked
        asked.entries = [(entry, entry.where) for entry, _ in targets]
        asked.pids = {rank: state.tensors.pid(rank) for rank in state.tensors.ranks}
        places = {id(entry): index for index, entry in enumerate(state.tensors.entries)}
        found = {
            rank: DigestRequest(rank=rank, pid=pid, serial=asked.serial, step=asked.step, everything=asked.everything)
            for rank, pid in asked.pids.items()
        }
        for entry, parts in targets:
            _add(state, found, places[id(entry)], parts)
        return found


def step_ahead(state: JobState, lead_s: float, interval_s: float) -> tuple[int, int]:
    """A step that no rank comes to before a request is there, and how far that is ahead of the first of them."""
    ahead = max(LEAST_LEAD, min(math.ceil(lead_s / interval_s), MOST_LEAD))
    return max(int(state.columns.step[rank]) for rank in state.tensors.ranks) + ahead, ahead


def step_interval_s(state: JobState) -> float:
    """A step of the fastest rank; 0 where that is not known, or some rank is gone."""
    ranks = [rank for rank in state.tensors.ranks if rank < len(state.columns.step)]
    if len(ranks) < len(state.tensors.ranks) or any(state.status(rank).gone for rank in ranks):
        return 0.0
    known = [float(state.columns.step_interval_s[rank]) for rank in ranks]
    return min((interval for interval in known if interval > 0), default=0.0)


def has_changed(state: JobState, pids: dict[int, int]) -> bool:
    """Whether some rank is not the process any more that was asked, or is gone."""
    return any(state.tensors.pid(rank) != pid or state.status(rank).gone for rank, pid in pids.items())


def _add(state: JobState, requests: dict[int, DigestRequest], index: int, parts: Iterable[DigestTarget]) -> None:
    """Ask these ranks for parts of a tensor, where they have it."""
    row = None
    for rank, request in requests.items():
        found = state.tensors.row(rank, index, row)
        if found is not None:
            row = found
            request.targets.extend(DigestTarget(row=row, first=p.first, stop=p.stop, parts=p.parts) for p in parts)


def _spans(entry: Entry) -> list[tuple[int, int]]:
    """The rows to be looked at next; none where it would tell no more."""
    shape = entry.infos[min(entry.infos)].shape if entry.infos else ()
    where = entry.where
    if not shape or shape[0] < 1:
        return []
    if where is None:
        return [(0, shape[0])]
    if where.unit <= 1 or where.unequal > max(PLACE * where.parts, 1):
        return []
    return list(merged(where.spans))
