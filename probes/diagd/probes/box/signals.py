"""The rank's scalars over its steps: one definition, for their writer in the rank and their readers outside.

A third file beside the box, `PID-START.signals`, under the box's rules: little-endian, allocated whole before it is
mapped, of fixed size, never resized. Names and texts are strings that follow each other and are named by their number;
a sample is one value of a name at a step, a fact the newest text of a name. Strings are published by the bytes that are
used, samples and facts by their serial numbers, so a reader needs no lock.

    header | numbers | facts | strings | ring of samples
"""

import itertools
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from diagd.probes.box.file import allocated

MAGIC = b"DIAGDSIG"
VERSION = 1
SUFFIX = ".signals"

HEADER = struct.Struct("<8sIIIIq")  # magic, version, size, pid, spare, written_mono_ns
NUMBERS_AT = 64  # int64 each
FACTS_AT = 128
FACT_FIELDS = 4  # serial (0 while being written), name, step, text: int64 each
MAX_FACTS = 512  # names that facts are kept of
STRINGS_AT = FACTS_AT + MAX_FACTS * FACT_FIELDS * 8
STRINGS_SIZE = 1024 * 1024  # uint16 length, UTF-8, one behind the other
SAMPLES_AT = STRINGS_AT + STRINGS_SIZE
SAMPLE_FIELDS = 4  # serial (0 while being written), name, step: int64 each; value: float64
MAX_SAMPLES = 32768
SIZE = SAMPLES_AT + MAX_SAMPLES * SAMPLE_FIELDS * 8

_STRING = struct.Struct("<H")
_MAX_BYTES = 1000  # of one string
_LOCK_S = 0.05  # longer than any holder needs; a signal handler may have interrupted the holder, so never for ever


class Number(IntEnum):
    """Index of each number behind the header."""

    STRINGS_USED = 0  # bytes
    SAMPLES = 1  # serial of the newest
    FACTS = 2  # rows in use
    FACT_SERIAL = 3  # of the newest fact
    LEFT_OUT = 4  # samples and facts for whose names or texts there was no room


_NEWEST = NUMBERS_AT // 8 + Number.SAMPLES
_FIRST = SAMPLES_AT // 8


class Fact(NamedTuple):
    """The newest text of a name; both by their numbers."""

    serial: int
    name: int
    step: int
    text: int


class SignalWriter:
    """A new file of signals at `path`, in the calling process; for any of its threads.

    Raises:
        OSError: The file cannot be made or allocated whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = allocated(path, SIZE)
        self._numbers = memoryview(self._map).cast("q")
        self._values = memoryview(self._map).cast("d")
        self._strings: dict[str, int] = {}
        self._facts: dict[str, int] = {}  # rows
        self._used = 0
        self._serials = itertools.count(
            1
        )  # drawing from it is one step of the interpreter: no two threads get the same
        self._lock = threading.RLock()  # for new strings and facts only
        HEADER.pack_into(self._map, 0, MAGIC, VERSION, SIZE, os.getpid(), 0, time.monotonic_ns())

    def sample(self, name: str, step: int, value: float) -> None:
        """Write a value down; one whose name finds no room is counted."""
        number = self._strings.get(name)
        if number is None:
            number = self._string(name)
            if number is None:
                self._leave_out()
                return
        serial = next(self._serials)
        at = _FIRST + (serial - 1) % MAX_SAMPLES * SAMPLE_FIELDS
        numbers = self._numbers
        numbers[at] = 0
        numbers[at + 1] = number
        numbers[at + 2] = step
        self._values[at + 3] = value
        numbers[at] = serial
        numbers[_NEWEST] = serial

    def fact(self, name: str, step: int, text: str) -> None:
        """Write a text down in the place of the last one of this name; one without room is counted."""
        words = self._string(name), self._string(text)
        got = self._lock.acquire(timeout=_LOCK_S)
        try:
            row = self._facts.get(name, len(self._facts))
            if not got or None in words or row >= MAX_FACTS:
                self._leave_out()
                return
            self._facts[name] = row
            self._put_fact(row, words[0] or 0, step, words[1] or 0)
        finally:
            if got:
                self._lock.release()

    def _put_fact(self, row: int, name: int, step: int, text: int) -> None:
        numbers, base = self._numbers, NUMBERS_AT // 8
        serial = numbers[base + Number.FACT_SERIAL] + 1
        at = FACTS_AT // 8 + row * FACT_FIELDS
        numbers[at] = 0
        numbers[at + 1], numbers[at + 2], numbers[at + 3] = name, step, text
        numbers[at] = serial
        numbers[base + Number.FACTS] = len(self._facts)
        numbers[base + Number.FACT_SERIAL] = serial

    def _leave_out(self) -> None:
        self._numbers[NUMBERS_AT // 8 + Number.LEFT_OUT] += 1

    def _string(self, text: str) -> int | None:
        known = self._strings.get(text)
        return known if known is not None else self._new_string(text)

    def _new_string(self, text: str) -> int | None:
        data = text.encode("utf-8", "replace")[:_MAX_BYTES]
        got = self._lock.acquire(timeout=_LOCK_S)
        try:
            end = self._used + _STRING.size + len(data)
            if not got or end > STRINGS_SIZE:
                return None
            if text in self._strings:
                return self._strings[text]
            at = STRINGS_AT + self._used
            _STRING.pack_into(self._map, at, len(data))
            self._map[at + _STRING.size : STRINGS_AT + end] = data
            self._used = self._numbers[NUMBERS_AT // 8 + Number.STRINGS_USED] = end
            number = self._strings[text] = len(self._strings)
            return number
        finally:
            if got:
                self._lock.release()


def read_strings(data: mmap.mmap, first: int, used: int) -> Iterator[tuple[str, int]]:
    """The published strings from an offset on, each with the offset behind it; `data` is the whole file."""
    used = min(used, STRINGS_SIZE)
    while first + _STRING.size <= used:
        at = STRINGS_AT + first
        (length,) = _STRING.unpack_from(data, at)
        first += _STRING.size + length
        if first > used:
            return
        yield data[at + _STRING.size : STRINGS_AT + first].decode("utf-8", "replace"), first
