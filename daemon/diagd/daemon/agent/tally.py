"""How many operations a rank has entered and how long it waited in them, by group and name, for /metrics."""

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.agent.boxes import group_names
from diagd.daemon.agent.observer import Observer
from diagd.daemon.agent.partners import Partners
from diagd.daemon.state.model import Facts
from diagd.probes.box import layout
from diagd.probes.box.layout import Live, Op
from diagd.probes.box.reader import BoxReader

MAX_GROUPS = 6  # of a rank; the rest are counted together as "other", so that series stay bounded
MAX_NAMES = 12
OTHER = "other"
TELL_EVERY_S = 2.0

# The fields of layout.RECORD that are needed here, where they lie.
_RECORD = np.dtype(
    {
        "names": ["serial", "entered", "issued", "wait", "returned", "group", "op", "peer"],
        "formats": ["<i8", "<i8", "<i8", "<i8", "<i8", "<i2", "u1", "<i4"],
        "offsets": [0, 8, 16, 24, 32, 56, 58, 64],
        "itemsize": layout.RECORD_SIZE,
    }
)
_RING = np.dtype([("head", "<i8", layout.RING_HEADER // 8), ("records", _RECORD, layout.RING_RECORDS)])
_BEGUN = 1  # index in a ring's head: records begun


class Tally:
    """One rank's operations, from its rings: each counted once when it is new, its wait once when it has returned."""

    def __init__(self, path: Path, reader: BoxReader) -> None:
        self._reader = reader
        self._rings = np.memmap(path, _RING, "r", layout.RINGS_AT, (layout.RING_COUNT,))
        self._seen = [0] * layout.RING_COUNT
        self._pending: list[list[int]] = [[] for _ in range(layout.RING_COUNT)]
        self._counts: dict[tuple[int, int], int] = {}
        self._waits: dict[tuple[int, int], float] = {}
        self._partners = Partners()
        self._lost = 0  # overwritten before they were read
        self._names: dict[int, str] = {}
        self._names_version = -1

    def read(self) -> None:
        """Take in what is new."""
        for ring in range(min(max(self._reader.live(Live.RINGS_USED), 0), layout.RING_COUNT)):
            self._read_ring(ring)

    def _read_ring(self, ring: int) -> None:
        begun = int(self._rings["head"][ring, _BEGUN])
        if begun > self._seen[ring] or self._pending[ring]:
            oldest = max(begun - layout.RING_RECORDS, 0)
            self._lost += max(oldest - self._seen[ring], 0)
            new = range(max(self._seen[ring], oldest), begun)
            waiting = [n for n in self._pending[ring] if n >= oldest]
            self._seen[ring], self._pending[ring] = begun, []
            if waiting:
                self._take(ring, waiting, count=False)
            if new:
                self._take(ring, new, count=True)

    def _take(self, ring: int, numbers: Iterable[int], *, count: bool) -> None:
        places = np.fromiter(numbers, dtype=np.int64)
        records = self._rings["records"][ring, places % layout.RING_RECORDS]
        sound = records["serial"] > 0
        places, records = places[sound], records[sound]
        keys = (records["group"].astype(np.int64) << 8) | records["op"]
        if count:
            for key, times in Counter(keys.tolist()).items():
                self._counts[_pair(key)] = self._counts.get(_pair(key), 0) + times
        returned = records["returned"] > 0
        self._pending[ring] += places[~returned].tolist()
        waits = _waits_s(records[returned])
        self._partners.add(records[returned], waits)
        for key, waited_s in zip(keys[returned].tolist(), waits.tolist(), strict=True):
            self._waits[_pair(key)] = self._waits.get(_pair(key), 0.0) + waited_s

    def held(self) -> dict[str, float]:
        """Of a rank that sends or receives: whom it waited for, and how many operations were not seen."""
        pending = (
            self._rings["records"][ring, np.asarray(numbers) % layout.RING_RECORDS]
            for ring, numbers in enumerate(self._pending)
            if numbers
        )
        held = self._partners.told(pending, time.monotonic_ns())
        return {**held, "operations_lost": float(self._lost)} if held else {}

    def extra(self) -> dict[str, float]:
        """The numbers, as `Facts.extra` carries them."""
        if (version := self._reader.text_version(layout.GROUPS)) != self._names_version:
            self._names, self._names_version = group_names(self._reader), version
        found: dict[str, float] = {f"operations|{OTHER}|{OTHER}": self._lost} if self._lost else {}
        groups: dict[str, None] = {}
        names: dict[str, None] = {}
        for kind, values in (("operations", self._counts), ("operation_wait_s", self._waits)):
            for (group, op), value in values.items():
                where = _bounded(groups, self._names.get(group, ""), MAX_GROUPS)
                name = _bounded(names, _op_name(op), MAX_NAMES)
                key = f"{kind}|{where}|{name}"
                found[key] = found.get(key, 0.0) + value
        return found


def _pair(key: int) -> tuple[int, int]:
    return key >> 8, key & 0xFF


def _waits_s(records: NDArray[np.void]) -> NDArray[np.float64]:
    """For how long the thread was held: in the call, and in the wait of what was issued asynchronously."""
    issued, wait = records["issued"], records["wait"]
    in_call = np.where(issued > 0, issued, records["returned"]) - records["entered"]
    in_wait = np.where((issued > 0) & (wait > 0), records["returned"] - wait, 0)
    waits: NDArray[np.float64] = np.maximum(in_call + in_wait, 0) / 1e9
    return waits


def _bounded(known: dict[str, None], word: str, limit: int) -> str:
    if word not in known and len(known) >= limit:
        return OTHER
    known[word] = None
    return word


def _op_name(op: int) -> str:
    try:
        return Op(op).name
    except ValueError:  # of a newer probe
        return Op.OTHER.name


class TallyingObserver(Observer):
    """An observer whose facts also say, now and then, how often each operation was entered."""

    def __init__(self, run_dir: Path, node: str = "") -> None:
        super().__init__(run_dir, node)
        self._tallies: dict[int, Tally] = {}  # by process
        self._told_s = 0.0

    def look(self, now_s: float | None = None) -> list[Facts]:
        """The numbers of every rank."""
        now_s = time.time() if now_s is None else now_s
        facts = super().look(now_s)
        tell = now_s - self._told_s >= TELL_EVERY_S
        if tell:
            self._told_s = now_s
        for fact in facts:
            tally = self._tally(fact.rank)
            if tally is not None:
                tally.read()
                if tell:
                    fact.extra.update(tally.extra())
                if fact.extra.get("run_delay_s") is not None:  # what its steps are made of is told: with what, too
                    fact.extra.update(tally.held())
        for pid in self._tallies.keys() - {watch.pid for watch in self._watches.values()}:
            del self._tallies[pid]
        return facts

    def _tally(self, rank: int) -> Tally | None:
        watch = self._watches.get(rank)
        if watch is None:
            return None
        if watch.pid not in self._tallies:
            try:
                self._tallies[watch.pid] = Tally(watch.box.path, watch.box.reader)
            except (OSError, ValueError):  # removed just now
                return None
        return self._tallies[watch.pid]
