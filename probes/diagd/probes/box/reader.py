"""Read a rank box from outside, without the rank's help and without trusting what it holds."""

import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any

from diagd.probes.box import layout
from diagd.probes.box.layout import Header, Live, Record, Section

_TEXT = struct.Struct("<II")
_RETRIES = 8


class BadBox(ValueError):
    """The file is no box that this version can read; the message says why."""


class BoxReader:
    """A box, mapped read-only; remembers how far each ring was read.

    Raises:
        OSError: The file cannot be opened.
        BadBox: It is truncated, foreign, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        fd = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            if size < layout.BOX_SIZE:
                raise BadBox(f"{path} has {size} bytes, a box has {layout.BOX_SIZE}: it was cut off or is not finished")
            self._map = mmap.mmap(fd, layout.BOX_SIZE, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self.header = self._read_header()
        self._numbers = memoryview(self._map).cast("q")
        self._seen = [0] * layout.RING_COUNT
        self._unfinished: dict[int, int] = {}  # record's offset -> serial

    def close(self) -> None:
        """Unmap the file."""
        self._numbers.release()
        self._map.close()

    def _read_header(self) -> Header:
        magic, version, size, pid, _, mono, wall, ticks = layout.HEADER.unpack_from(self._map, 0)
        if magic != layout.MAGIC:
            raise BadBox(f"{self.path} does not start as a box does")
        if version != layout.VERSION:
            raise BadBox(f"{self.path} is of box version {version}, this diagd reads {layout.VERSION}")
        return Header(size, pid, mono, wall, ticks)

    def live(self, slot: int) -> int:
        """One of the live numbers."""
        return self._numbers[layout.LIVE_AT // 8 + slot]

    def wall_s(self, mono_ns: int) -> float:
        """A time of this box as Unix seconds."""
        return (self.header.anchor_wall_ns + (mono_ns - self.header.anchor_mono_ns)) / 1e9

    def text(self, section: Section) -> Any:
        """The JSON of a section; None where nothing is written, or a write is never finished (the rank died in it)."""
        for _ in range(_RETRIES):
            before, length = _TEXT.unpack_from(self._map, section.offset)
            if before % 2 == 0 and length <= section.size - _TEXT.size:
                data = self._map[section.offset + _TEXT.size : section.offset + _TEXT.size + length]
                if _TEXT.unpack_from(self._map, section.offset)[0] == before:
                    return _parsed(data)
        return None

    def text_version(self, section: Section) -> int:
        """Changes whenever the section is rewritten."""
        return int(_TEXT.unpack_from(self._map, section.offset)[0])

    def string(self, offset: int) -> str:
        """An interned string; empty for an offset that holds none."""
        if not 0 < offset < min(self.live(Live.STRINGS_USED), layout.STRINGS_SIZE - 2):
            return ""
        at = layout.STRINGS_AT + offset
        (length,) = struct.unpack_from("<H", self._map, at)
        return self._map[at + 2 : min(at + 2 + length, layout.RINGS_AT)].decode("utf-8", "replace")

    def counters(self, group: int) -> tuple[int, int, int]:
        """(enqueued, completed, updated_ns) of a group by its index; -1 where not known."""
        if not 0 <= group < layout.GROUP_SLOTS:
            return -1, -1, 0
        at = layout.COUNTERS_AT // 8 + group * layout.COUNTER_FIELDS
        return self._numbers[at], self._numbers[at + 1], self._numbers[at + 2]

    def threads(self) -> list[tuple[int, str]]:
        """(native thread id, name) of each ring's writer."""
        found = []
        for ring in range(self._rings()):
            at = layout.RINGS_AT + ring * layout.RING_SIZE
            name = self._map[at + 16 : at + layout.RING_HEADER].split(b"\0")[0].decode("utf-8", "replace")
            found.append((self._numbers[at // 8], name))
        return found

    def unfinished(self) -> list[Record]:
        """Operations that have not returned, oldest first; reads only what is new since the last call."""
        for ring in range(self._rings()):
            for offset, record in self._new_records(ring):
                if record.returned_ns == 0:
                    self._unfinished[offset] = record.serial
        found = []
        for offset, serial in list(self._unfinished.items()):
            now = self._record(offset)
            if now is None or now.serial != serial or now.returned_ns:
                del self._unfinished[offset]
            else:
                found.append(now)
        return sorted(found, key=lambda r: r.entered_ns)

    def history(self, limit: int = layout.RING_RECORDS) -> list[Record]:
        """The last `limit` operations of each thread, oldest first, finished or not."""
        found = []
        for ring in range(self._rings()):
            at = layout.RINGS_AT + ring * layout.RING_SIZE
            begun = self._numbers[at // 8 + 1]
            for n in range(max(0, begun - min(limit, layout.RING_RECORDS)), begun):
                record = self._record(at + layout.RING_HEADER + n % layout.RING_RECORDS * layout.RECORD_SIZE)
                if record is not None:
                    found.append(record)
        return sorted(found, key=lambda r: r.entered_ns)

    def _rings(self) -> int:
        return min(max(self.live(Live.RINGS_USED), 0), layout.RING_COUNT)

    def _new_records(self, ring: int) -> list[tuple[int, Record]]:
        at = layout.RINGS_AT + ring * layout.RING_SIZE
        begun = self._numbers[at // 8 + 1]
        first = max(self._seen[ring], begun - layout.RING_RECORDS)
        self._seen[ring] = begun
        offsets = [at + layout.RING_HEADER + n % layout.RING_RECORDS * layout.RECORD_SIZE for n in range(first, begun)]
        return [(o, r) for o in offsets if (r := self._record(o)) is not None]

    def _record(self, offset: int) -> Record | None:
        fields = layout.RECORD.unpack_from(self._map, offset)
        if fields[0] <= 0 or self._numbers[offset // 8] != fields[0]:
            return None  # empty, or being written just now
        return Record._make((*fields[:19], fields[19 : 19 + min(fields[12], layout.MAX_DIMS)]))


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return None
