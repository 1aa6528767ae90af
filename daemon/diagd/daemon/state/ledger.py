"""What the ranks' tensors hold, as digests side by side: arrays over tensors, steps and ranks."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.state.parts import PartBook, Where
from diagd.daemon.state.tensors import LedgerNews, TensorInfo

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

EARLY = 3  # the first steps have places of their own: 0 is before the first step
KEPT = EARLY + 8  # steps of which a tensor's digests are kept until all who must agree have told theirs
NONE = -1
AT_START = 1 << 62  # the serial of what ranks tell before their first step (probes' box/requests.py)
MAX_PARTS = 8  # unequal comparisons that are kept of a tensor, the first of all


@dataclass(slots=True)
class Agreement:
    """What the comparisons of one tensor have shown; steps are numbers of completed training steps, -1 none."""

    first: int = NONE  # the first step that was compared
    first_equal: bool = True
    last_equal: int = NONE
    first_unequal: int = NONE  # of the stretch that lasts, as the next two
    unequal: int = 0  # comparisons in a row
    classes: list[list[int]] = field(default_factory=list)  # ranks by equal content, the largest class first
    times: int = 0  # comparisons in all
    parts: list[tuple[int, list[list[int]]]] = field(default_factory=list)  # unequal ones of all time: step, classes
    equal: int = 0  # comparisons in a row
    equal_since: int = NONE  # the first step of that stretch
    last_unequal: int = NONE


@dataclass(slots=True)
class Entry:
    """One tensor over the ranks that may have to agree on it."""

    kind: str
    name: str
    peers: tuple[int, ...]
    infos: dict[int, TensorInfo] = field(default_factory=dict)  # by rank
    agreement: Agreement = field(default_factory=Agreement)
    where: Where | None = None  # the rows that differed when they were last looked at
    beside: tuple[int, ...] = ()  # as in TensorInfo

    @property
    def together(self) -> tuple[int, ...]:
        """The ranks that hold one part of it, by wrapper or mesh; empty where neither says anything."""
        return self.peers or self.beside


class TensorLedger:
    """All tensors of a job."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.left_out: dict[int, int] = {}
        self.answers: dict[int, tuple[int, int]] = {}  # rank -> the last request that was done, and its step
        self.sums: dict[int, bytes] = {}  # rank -> what it told last in answer to a request for them, as it told it
        self.first_sums: dict[int, bytes] = {}  # likewise, before its first step
        self.asked: set[int] = set()  # steps after which digests were taken because they were asked for
        self._parts = PartBook()
        self._index: dict[tuple[str, str, tuple[int, ...], tuple[int, ...]], int] = {}
        self._rows: dict[int, tuple[int, dict[int, int]]] = {}  # rank -> (pid, row -> entry)
        self._known: dict[TensorInfo, TensorInfo] = {}
        self._steps: Ints = np.full((0, KEPT), NONE, np.int64)
        self._digests: Ints = np.zeros((0, KEPT, 0), np.int64)
        self._have: Bools = np.zeros((0, KEPT, 0), np.bool_)

    def apply(self, news: Iterable[LedgerNews], world_size: int) -> None:
        """Take what is new, and compare what all who must agree have told."""
        touched: set[tuple[int, int]] = set()
        parts: set[tuple[int, int]] = set()
        for one in news:
            self._describe(one)
            touched |= self._take(one)
            parts |= self._take_parts(one)
        for entry, place in sorted(touched, key=lambda t: self._steps[t]):
            self._compare(entry, place, world_size)
        for index, step in sorted(parts):
            self._compare_parts(index, step, world_size)

    def pid(self, rank: int) -> int:
        """The rank's process; 0 where it has no ledger."""
        return self._rows[rank][0] if rank in self._rows else 0

    def row(self, rank: int, index: int, near: int | None) -> int | None:
        """By which row of its ledger the rank knows one of the entries; likely `near`, as another rank has it."""
        rows = self._rows[rank][1] if rank in self._rows else {}
        if near is not None and rows.get(near) == index:
            return near
        return next((row for row, at in rows.items() if at == index), None)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All that have a ledger."""
        return tuple(sorted(self._rows))

    @property
    def first_step(self) -> int | None:
        """The first step after which any tensor's digest was taken; None before that."""
        known = self._steps[self._steps != NONE]
        return int(known.min()) if len(known) else None

    def samples(self, index: int) -> dict[int, dict[int, int]]:
        """Of one of the entries what is kept: the ranks' digests (signed) by the step after which they were taken."""
        if index >= len(self._steps):
            return {}
        found = {}
        for place in np.argsort(self._steps[index]):
            ranks = np.flatnonzero(self._have[index, place])
            if len(ranks) and self._steps[index, place] != NONE:
                told = self._digests[index, place, ranks]
                found[int(self._steps[index, place])] = dict(zip(ranks.tolist(), told.tolist(), strict=True))
        return found

    def _describe(self, news: LedgerNews) -> None:
        pid, rows = self._rows.get(news.rank, (news.pid, {}))
        if pid != news.pid:
            self._forget(rows)
            self.answers.pop(news.rank, None)
            self.sums.pop(news.rank, None)
            self.first_sums.pop(news.rank, None)
            rows = {}
        self._rows[news.rank] = news.pid, rows
        self.left_out[news.rank] = news.left_out
        for row, info in enumerate(news.tensors, news.first_row):
            rows[row] = index = self._entry(info)
            self.entries[index].infos[news.rank] = self._known.setdefault(info, info)
        self._grow(news.rank)

    def _entry(self, info: TensorInfo) -> int:
        key = info.kind, info.name, info.peers, info.beside
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self.entries)
            self.entries.append(Entry(info.kind, info.name, info.peers, beside=info.beside))
        return index

    def _forget(self, rows: dict[int, int]) -> None:
        """Another process under this number: what was compared with the one before says nothing of it."""
        for index in rows.values():
            self._steps[index], self._have[index] = NONE, False
            self.entries[index].agreement, self.entries[index].where = Agreement(), None
            self._parts.forget(index)

    def _grow(self, rank: int) -> None:
        tensors, _, ranks = self._have.shape
        if len(self.entries) > tensors or rank >= ranks:
            more = max(len(self.entries), tensors), KEPT, max(rank + 1, ranks)
            if more[0] > tensors:
                more = max(more[0], 2 * tensors), *more[1:]
            steps, digests, have = np.full(more[:2], NONE, np.int64), np.zeros(more, np.int64), np.zeros(more, np.bool_)
            steps[:tensors] = self._steps
            digests[:tensors, :, :ranks], have[:tensors, :, :ranks] = self._digests, self._have
            self._steps, self._digests, self._have = steps, digests, have

    def _take(self, news: LedgerNews) -> set[tuple[int, int]]:
        rows = self._rows[news.rank][1]
        touched = set()
        for row, step, digest in zip(news.rows, news.steps, news.digests, strict=True):
            index = rows.get(row)
            place = self._place(index, step) if index is not None else None
            if index is not None and place is not None:
                self._digests[index, place, news.rank], self._have[index, place, news.rank] = digest, True
                touched.add((index, place))
        return touched

    def _take_parts(self, news: LedgerNews) -> set[tuple[int, int]]:
        """The entries and steps of which there are new parts."""
        rows, touched = self._rows[news.rank][1], set()
        columns = news.part_rows, news.part_steps, news.part_firsts, news.part_stops, news.part_digests
        for row, step, first, stop, digest in zip(*columns, strict=True):
            index = rows.get(row)
            if index is not None:
                self._parts.take(index, step, (first, stop), news.rank, digest)
                touched.add((index, step))
        if news.sums:
            (self.first_sums if news.answered == AT_START else self.sums)[news.rank] = news.sums
        if news.answered:
            self.answers[news.rank] = news.answered, news.answer
            if news.answer >= 0 and news.answered != AT_START:
                self.asked.add(news.answer)
        return touched

    def _place(self, index: int, step: int) -> int | None:
        """Where the digests after this step are kept; None where newer ones have taken all places."""
        if 0 <= step < EARLY:
            self._steps[index, step] = step
            return step
        steps = self._steps[index, EARLY:]
        known = np.flatnonzero(steps == step)
        if known.size:
            return EARLY + int(known[0])
        oldest = int(steps.argmin())
        if steps[oldest] > step:
            return None
        steps[oldest], self._have[index, EARLY + oldest] = step, False
        return EARLY + oldest

    def members(self, entry: Entry, world_size: int) -> tuple[int, ...]:
        """The ranks that are compared; none while some that may be among them have not told what they hold."""
        if entry.peers:
            return entry.peers if all(r in entry.infos for r in entry.peers) else ()
        return tuple(sorted(entry.infos)) if len(self._rows) >= world_size else ()

    def _are_alike(self, entry: Entry) -> bool:
        ranks = entry.peers or tuple(entry.infos)
        return len({(entry.infos[r].dtype, entry.infos[r].shape) for r in ranks if r in entry.infos}) == 1

    def _compare(self, index: int, place: int, world_size: int) -> None:
        entry = self.entries[index]
        members = self.members(entry, world_size)
        if len(members) < 2 or max(members) >= self._have.shape[2] or any(entry.infos[r].local for r in members):
            return
        if not self._are_alike(entry):
            return  # not the same thing
        ranks = list(members)
        if self._have[index, place, ranks].all():
            digests = self._digests[index, place, ranks]
            _note(entry.agreement, int(self._steps[index, place]), _classes(ranks, digests.tolist()))

    def _compare_parts(self, index: int, step: int, world_size: int) -> None:
        entry = self.entries[index]
        if self._are_alike(entry):
            entry.where = self._parts.compare(index, step, self.members(entry, world_size), entry.where)


def _classes(ranks: list[int], digests: list[int]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for rank, digest in zip(ranks, digests, strict=True):
        found.setdefault(digest, []).append(rank)
    return sorted(found.values(), key=lambda alike: (-len(alike), alike))


def _note(agreement: Agreement, step: int, classes: list[list[int]]) -> None:
    equal = len(classes) == 1
    if agreement.first == NONE:
        agreement.first, agreement.first_equal = step, equal
    agreement.times += 1
    if equal:
        agreement.last_equal, agreement.first_unequal = max(step, agreement.last_equal), NONE
        agreement.unequal, agreement.classes = 0, []
        if not agreement.equal:
            agreement.equal_since = step
        agreement.equal += 1
        return
    agreement.equal, agreement.equal_since = 0, NONE
    agreement.last_unequal = max(step, agreement.last_unequal)
    if agreement.first_unequal == NONE:
        agreement.first_unequal = step
    if len(agreement.parts) < MAX_PARTS:
        agreement.parts.append((step, classes))
    agreement.unequal += 1
    agreement.classes = classes
