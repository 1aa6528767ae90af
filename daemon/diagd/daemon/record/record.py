"""Writes the aggregator's inputs to a file, and reads them back, also from a file that was cut off."""

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from google.protobuf.message import DecodeError

from diagd.proto.v1.record_pb2 import RecordEntry

MAGIC = b"DIAGDREC1\n"
LENGTH = struct.Struct("<I")
MAX_ENTRY_BYTES = 64 * 1024 * 1024
MOST_APART_S = 30 * 86400.0  # two entries: what is further from the last one is no time of this recording


class NotARecord(ValueError):
    """The file holds something else."""


class RecordWriter:
    """Appends entries; each reaches the file before `write` returns, so that a killed process loses at most one."""

    def __init__(self, path: Path) -> None:
        """Begin a record, or go on with one that a process before this one began.

        Raises:
            OSError: The file cannot be written.
            NotARecord: It holds something else.
        """
        self._file = path.open("a+b", buffering=0)
        self._file.seek(0)
        head = self._file.read(len(MAGIC))
        if not head:
            self._file.write(MAGIC)
        elif head != MAGIC:
            self._file.close()
            raise NotARecord(f"{path} is no record of diagd's: it is not overwritten")
        else:
            self._file.truncate(_sound_length(path))

    def write(self, entry: RecordEntry) -> None:
        """Append one.

        Raises:
            OSError: The disk is full, say.
        """
        packed = entry.SerializeToString()
        self._file.write(LENGTH.pack(len(packed)) + packed)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RecordReader:
    """Iterates over a record's entries; `cut_off` says afterwards whether it ended in the middle of one.

    What follows an entry that cannot be read is not read either: without it the rest would say something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cut_off = False
        self.sound_bytes = 0
        self._bytes = 0
        self._largest = 0  # entry, in bytes
        self._last_s = 0.0
        self._spoilt = False

    @property
    def damage(self) -> str:
        """What is wrong with the record, in words; empty where it is whole, or only lacks its end."""
        lost = self._bytes - self.sound_bytes
        if not self.cut_off or not (self._spoilt or lost > self._largest):  # less is an entry that was being written
            return ""
        return f"the recording is damaged at byte {self.sound_bytes} of {self._bytes}, and was not read from there on"

    def __iter__(self) -> Iterator[RecordEntry]:
        """Yield the entries in order.

        Raises:
            OSError: The file cannot be read.
            NotARecord: It holds something else.
        """
        with self._path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise NotARecord(f"{self._path} is no record of diagd's")
            self.sound_bytes, self._bytes = len(MAGIC), os.fstat(file.fileno()).st_size
            while head := file.read(LENGTH.size):
                entry = self._entry(head, file.read)
                if entry is None:
                    self.cut_off = True
                    return
                self._largest = max(self._largest, file.tell() - self.sound_bytes)
                self.sound_bytes = file.tell()
                yield entry

    def _entry(self, head: bytes, read: Callable[[int], bytes]) -> RecordEntry | None:
        if len(head) < LENGTH.size:
            return None
        length = LENGTH.unpack(head)[0]
        self._spoilt = not 0 < length <= MAX_ENTRY_BYTES
        if self._spoilt:
            return None
        packed = read(length)
        if len(packed) < length:
            return None
        try:
            entry = RecordEntry.FromString(packed)
        except DecodeError:
            self._spoilt = True
            return None
        # NaN is no time either.
        self._spoilt = not (self._last_s == 0.0 or abs(entry.received_s - self._last_s) < MOST_APART_S)
        self._last_s = entry.received_s
        return None if self._spoilt else entry


def _sound_length(path: Path) -> int:
    reader = RecordReader(path)
    for _ in reader:
        pass
    return reader.sound_bytes
