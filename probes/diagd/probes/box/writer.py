"""Write a rank box from inside the rank. Nothing here waits for long, and nothing allocates more than once per name."""

import contextlib
import json
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diagd.probes.box import layout
from diagd.probes.box.file import allocated
from diagd.probes.box.layout import FieldIndex, Live, Section

_TEXT = struct.Struct("<II")
_LOCK_S = 0.05  # longer than any holder needs; a signal handler may have interrupted the holder, so never for ever
_RECORDS = layout.RING_RECORDS
_RECORD_SIZE = layout.RECORD_SIZE
_OPERATIONS = layout.LIVE_AT // 8 + Live.OPERATIONS
_RECORD = layout.RECORD
_ENTERED = int(FieldIndex.ENTERED)
_now = time.monotonic_ns
_FIRST_STRING = 8  # offset 0 means none
_MAX_TEMPLATES = 1024  # a job whose shapes never repeat must not fill the memory
_LASTING = layout.STRINGS_SIZE * 3 // 4  # above it lie the passing strings, oldest overwritten first


class BoxWriter:
    """A new box at `path`, in the calling process.

    Raises:
        OSError: The file cannot be made or allocated whole (read-only or full file system).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = allocated(path, layout.BOX_SIZE)
        self.numbers = memoryview(self._map).cast("q")
        self.live = self.numbers[layout.LIVE_AT // 8 : layout.LIVE_AT // 8 + layout.LIVE_SLOTS]
        self._strings: dict[Any, int] = {}
        self._passing: dict[str, int] = {}
        self._lasting_used = _FIRST_STRING
        self._passing_at = _LASTING
        self._rings: list[tuple[int, RingWriter]] = []  # with the ident of the thread that has it
        self._own = threading.local()
        self._lock = threading.Lock()  # only for new strings, rings and texts, never on a step's usual path
        self.live[Live.STEP] = -1
        self.live[Live.STRINGS_USED] = _FIRST_STRING
        self.live[Live.ENABLED] = 1
        for n in range(layout.GROUP_SLOTS * layout.COUNTER_FIELDS):
            self.numbers[layout.COUNTERS_AT // 8 + n] = -1
        layout.HEADER.pack_into(
            self._map, 0, layout.MAGIC, layout.VERSION, layout.BOX_SIZE, os.getpid(), 0,
            time.monotonic_ns(), time.time_ns(), start_ticks(),
        )  # fmt: skip

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether this thread may now change what all share; where not, it does without."""
        got = self._lock.acquire(timeout=_LOCK_S)
        try:
            yield got
        finally:
            if got:
                self._lock.release()
            else:
                self.live[Live.DROPPED] += 1

    def set_text(self, section: Section, value: Any) -> bool:
        """Replace a section's JSON; False where it does not fit, and the old one stays."""
        data = json.dumps(value, separators=(",", ":"), default=str).encode("utf-8", "replace")
        if len(data) > section.size - _TEXT.size:
            return False
        with self._alone() as alone:
            if alone:
                sequence = _TEXT.unpack_from(self._map, section.offset)[0]
                odd = (sequence + 1) | 1
                _TEXT.pack_into(self._map, section.offset, odd, len(data))
                at = section.offset + _TEXT.size
                self._map[at : at + len(data)] = data
                _TEXT.pack_into(self._map, section.offset, (odd + 1) & 0xFFFFFFFF, len(data))
        return alone

    def set_counters(self, group: int, enqueued: int, completed: int) -> None:
        """A group's counters as its backend has them; -1 where not known."""
        if not 0 <= group < layout.GROUP_SLOTS:
            return
        at = layout.COUNTERS_AT // 8 + group * layout.COUNTER_FIELDS
        self.numbers[at] = enqueued
        self.numbers[at + 1] = completed
        self.numbers[at + 2] = time.monotonic_ns()

    def intern(self, key: Any, text: str) -> int:
        """The offset of a string that is kept for good; 0 when there is no room left, which is counted."""
        known = self._strings.get(key)
        return known if known is not None else self._add_lasting(key, text)

    def passing(self, text: str) -> int:
        """The offset of a string that may be overwritten once many others have followed it: a key, a message."""
        known = self._passing.get(text)
        return known if known is not None else self._add_passing(text)

    def _add_lasting(self, key: Any, text: str) -> int:
        data = text.encode("utf-8", "replace")[:4000]
        with self._alone() as alone:
            used = self._lasting_used
            if not alone or used + 2 + len(data) > _LASTING:
                self.live[Live.DROPPED] += 1
                return 0
            self._put_string(used, data)
            self._lasting_used = used + 2 + len(data)
            self._strings[key] = used
        return used

    def _add_passing(self, text: str) -> int:
        data = text.encode("utf-8", "replace")[:1000]
        with self._alone() as alone:
            if not alone:
                return 0
            at = self._passing_at
            if at + 2 + len(data) > layout.STRINGS_SIZE:
                at = _LASTING
                self._passing.clear()
            self._put_string(at, data)
            self._passing_at = at + 2 + len(data)
            self._passing[text] = at
        return at

    def _put_string(self, offset: int, data: bytes) -> None:
        at = layout.STRINGS_AT + offset
        struct.pack_into("<H", self._map, at, len(data))
        self._map[at + 2 : at + 2 + len(data)] = data
        self.live[Live.STRINGS_USED] = max(self.live[Live.STRINGS_USED], offset + 2 + len(data))

    def ring(self) -> "RingWriter | None":
        """The calling thread's ring; None when all rings are taken by threads that live, which is counted."""
        try:
            ring: RingWriter | None = self._own.ring
        except AttributeError:
            ring = self._own.ring = self._find_ring()
        if ring is None:
            self.live[Live.DROPPED] += 1
        return ring

    def _find_ring(self) -> "RingWriter | None":
        ident = threading.get_ident()
        with self._alone() as alone:
            if not alone:
                return None
            index = len(self._rings)
            if index < layout.RING_COUNT:
                self._rings.append((ident, RingWriter(self, index)))
                self.live[Live.RINGS_USED] = index + 1
                return self._rings[index][1]
            return self._take_over(ident)

    def _take_over(self, ident: int) -> "RingWriter | None":
        """A ring whose thread has ended; its last operations stay until they are overwritten."""
        alive = sys._current_frames().keys() - {ident}  # takes no lock, as threading.enumerate would
        for index, (owner, ring) in enumerate(self._rings):
            if owner not in alive:
                self._rings[index] = (ident, ring)
                ring.claim()
                return ring
        return None


class RingWriter:
    """The operations of one thread; only that thread writes."""

    def __init__(self, box: BoxWriter, index: int) -> None:
        self._map = box._map
        self.numbers = box.numbers
        self._at = layout.RINGS_AT + index * layout.RING_SIZE
        self._header = self._at // 8
        self._records_at = self._at + layout.RING_HEADER
        self.templates: dict[Any, bytes] = {}  # whole records but for serial and times, by what makes them differ
        self.claim()

    def claim(self) -> None:
        """The calling thread writes from now on."""
        self.templates.clear()
        self._thread = threading.get_native_id()
        self.numbers[self._header] = self._thread
        name = threading.current_thread().name.encode("utf-8", "replace")[:47]
        self._map[self._at + 16 : self._at + layout.RING_HEADER] = name.ljust(layout.RING_HEADER - 16, b"\0")

    def begin(
        self, op: int, group: int, flags: int, dtype: int, reduce: int, peer: int, tag: int, site: int, detail: int,
        numel: int, tensors: int, dims: tuple[int, ...], seq: int = 0,
    ) -> int:  # fmt: skip
        """Note that the calling thread enters an operation.

        Returns:
            The record's int64 index, for `set`.
        """
        template = self.template(
            (), seq, numel, group, op, flags, dtype, reduce, len(dims), min(tensors, 255), peer, tag, site, detail,
            padded(dims),
        )  # fmt: skip
        return self.stamp(template, _now())

    def template(
        self, key: Any, seq: int, numel: int, group: int, op: int, flags: int, dtype: int, reduce: int, ndim: int,
        tensors: int, peer: int, tag: int, site: int, detail: int, dims: tuple[int, ...],
    ) -> bytes:  # fmt: skip
        """A record without serial and times, dims padded; kept under `key` if that is not empty.

        The operations of a loop are the same in each step: they are described once and then only stamped.
        """
        data = _RECORD.pack(
            0, 0, 0, 0, 0, seq, numel, group, op, flags, dtype, reduce, ndim, tensors, peer, tag, site, detail,
            self._thread, *dims,
        )  # fmt: skip
        if key:
            if len(self.templates) >= _MAX_TEMPLATES:
                self.templates.clear()
            self.templates[key] = data
        return data

    def stamp(self, template: bytes, entered_ns: int) -> int:
        """Begin an operation, as `begin` does, of which all else is known."""
        # Nothing below is a call, so no other thread and no signal handler comes in between.
        numbers = self.numbers
        begun = numbers[self._header + 1]
        at = self._records_at + begun % _RECORDS * _RECORD_SIZE
        index = at >> 3
        serial = numbers[_OPERATIONS] + 1
        numbers[index] = 0
        self._map[at : at + _RECORD_SIZE] = template
        numbers[index + _ENTERED] = entered_ns
        numbers[index] = serial
        numbers[self._header + 1] = begun + 1
        numbers[_OPERATIONS] = serial
        return index

    def set(self, index: int, field: FieldIndex, value: int) -> None:
        """Update a record that may have gone on to another thread's hands (a wait elsewhere): plain 8-byte store."""
        self.numbers[index + field] = value

    def fail(self, index: int, flags: int, detail: int) -> None:
        """Note that the operation raised."""
        at = index * 8
        self._map[at + 59] = flags
        struct.pack_into("<I", self._map, at + 76, detail)


def padded(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Exactly as many dimensions as a record holds."""
    return (*dims, *(0,) * layout.MAX_DIMS)[: layout.MAX_DIMS]


def start_ticks() -> int:
    """The kernel's start time of this process: tells it from a later one with the same pid."""
    try:
        return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
