"""The rank's ledger of tensors: one definition, for its writer in the rank and its readers outside.

A second file beside the box, `PID-START.ledger`, under the box's rules: little-endian, allocated whole before it is
mapped, of fixed size, never resized. A row says what a tensor is and is written once; a sample says what one held after
a step. Rows are published by their count, samples by their serial number, so a reader needs no lock. All that a reader
writes is a request for digests out of turn (requests.py); digests of parts of tensors are told in answer.

    header | numbers | rows | strings | ring of samples | ring of parts | request
"""

import mmap
import os
import struct
import time
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import NamedTuple

from diagd.probes.box import requests
from diagd.probes.box.file import allocated

MAGIC = b"DIAGDLED"
VERSION = 2
SUFFIX = ".ledger"

HEADER = struct.Struct("<8sIIIIq")  # magic, version, size, pid, spare, written_mono_ns
NUMBERS_AT = 64  # int64 each
ROWS_AT = 128
MAX_ROWS = 8192
BESIDE = "~"  # before the ranks of a tensor that nothing says are to hold the same
# name, shape ("128,64"), dtype, placement, peers ("0-3"): offsets of strings; kind, flags, number of elements
ROW = struct.Struct("<IIIIIBBHq32x")
STRINGS_AT = ROWS_AT + MAX_ROWS * ROW.size
STRINGS_SIZE = 1024 * 1024  # entries: uint16 length, UTF-8; named by their offset; offset 0 is the empty string
SAMPLES_AT = STRINGS_AT + STRINGS_SIZE
SAMPLE_FIELDS = 4  # serial (0 while being written), row, step, digest: int64 each
MAX_SAMPLES = 32768
EARLY_STEPS = 2  # before the first step and after each of these, all are sampled
TURN = 32  # steps in which each trained tensor is sampled once; frozen ones seldom
PARTS_AT = SAMPLES_AT + MAX_SAMPLES * SAMPLE_FIELDS * 8
PART_FIELDS = 6  # serial (0 while being written), row, step, first, stop (of the tensor's rows), digest: int64 each
MAX_PARTS = 4096
REQUEST_AT = PARTS_AT + MAX_PARTS * PART_FIELDS * 8
SIZE = REQUEST_AT + requests.SIZE

_STRING = struct.Struct("<H")
_FIRST_STRING = 8


class Number(IntEnum):
    """Index of each number behind the header."""

    ROWS = 0
    SAMPLES = 1  # serial of the newest
    STRINGS_USED = 2
    LEFT_OUT = 3  # tensors for which there was no room, or that cannot be read where they lie
    PARTS = 4  # serial of the newest
    ANSWERED = 5  # serial of the last request that was done, or that came too late
    ANSWER = 6  # the step after which its digests were taken, or requests.LATE


class Kind(IntEnum):
    """What a tensor is to its module."""

    PARAMETER = 0
    BUFFER = 1
    STATE = 2  # what an optimizer keeps for a parameter
    GRADIENT = 3  # of a parameter, as its optimizer is given it


class Flag(IntFlag):
    """Bits of a row's flags."""

    TRAINABLE = 1  # requires_grad
    OWNED = 2  # in an optimizer
    LOCAL = 4  # of this rank alone, or made equal by its wrapper before each use: nothing to compare
    COPY = 8  # its model is the untrained twin of one that is trained
    TRAINED_MODEL = 16  # some optimizer owns parameters of its model
    TRANSIENT = 32  # a buffer that is not saved with its module


class Tensor(NamedTuple):
    """What a row says."""

    name: str
    kind: Kind
    dtype: str
    shape: str
    placement: str
    peers: str  # the global ranks that must hold the same, by its wrapper or mesh; after BESIDE those that may have to
    flags: int
    numel: int


class LedgerWriter:
    """A new ledger at `path`, in the calling process; for use by one thread.

    Raises:
        OSError: The file cannot be made or allocated whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = allocated(path, SIZE)
        self._numbers = memoryview(self._map).cast("q")
        self._strings: dict[str, int] = {"": 0}
        self._used = _FIRST_STRING
        self._rows = self._serial = self._parts = 0
        HEADER.pack_into(self._map, 0, MAGIC, VERSION, SIZE, os.getpid(), 0, time.monotonic_ns())

    def add(self, tensor: Tensor) -> int | None:
        """Describe a tensor; its row, None where there is no room."""
        texts = [self._string(t) for t in (tensor.name, tensor.shape, tensor.dtype, tensor.placement, tensor.peers)]
        row = self._rows
        if row >= MAX_ROWS or None in texts:
            return None
        ROW.pack_into(self._map, ROWS_AT + row * ROW.size, *texts, int(tensor.kind), int(tensor.flags), 0, tensor.numel)
        self._rows = self._numbers[NUMBERS_AT // 8 + Number.ROWS] = row + 1
        return row

    def leave_out(self) -> None:
        """Count a tensor that is not watched."""
        self._numbers[NUMBERS_AT // 8 + Number.LEFT_OUT] += 1

    def sample(self, row: int, step: int, digest: int) -> None:
        """Say what a tensor held after a step; `digest` is the signed form of its 64 bits."""
        serial = self._serial = self._serial + 1
        at = SAMPLES_AT // 8 + (serial - 1) % MAX_SAMPLES * SAMPLE_FIELDS
        numbers = self._numbers
        numbers[at] = 0
        numbers[at + 1], numbers[at + 2], numbers[at + 3] = row, step, digest
        numbers[at] = serial
        numbers[NUMBERS_AT // 8 + Number.SAMPLES] = serial

    def part(self, row: int, step: int, first: int, stop: int, digest: int) -> None:
        """Say what some rows of a tensor held after a step."""
        serial = self._parts = self._parts + 1
        at = PARTS_AT // 8 + (serial - 1) % MAX_PARTS * PART_FIELDS
        numbers = self._numbers
        numbers[at] = 0
        numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4] = row, step, first, stop
        numbers[at + 5] = digest
        numbers[at] = serial
        numbers[NUMBERS_AT // 8 + Number.PARTS] = serial

    def request(self, seen: int) -> requests.Request | None:
        """What is asked for, unless it is the request of this serial."""
        at = REQUEST_AT // 8
        return requests.read(self._numbers, at) if self._numbers[at] != seen else None

    def answer(self, serial: int, step: int) -> None:
        """A request was done after this step; requests.LATE: that step was over when the request came."""
        self._numbers[NUMBERS_AT // 8 + Number.ANSWER] = step
        self._numbers[NUMBERS_AT // 8 + Number.ANSWERED] = serial

    def _string(self, text: str) -> int | None:
        known = self._strings.get(text)
        if known is not None:
            return known
        data = text.encode("utf-8", "replace")[:1000]
        offset = self._used
        if offset + _STRING.size + len(data) > STRINGS_SIZE:
            return None
        at = STRINGS_AT + offset
        _STRING.pack_into(self._map, at, len(data))
        self._map[at + _STRING.size : at + _STRING.size + len(data)] = data
        self._used = self._numbers[NUMBERS_AT // 8 + Number.STRINGS_USED] = offset + _STRING.size + len(data)
        self._strings[text] = offset
        return offset


def read_tensor(data: mmap.mmap, row: int) -> Tensor:
    """What a published row says; `data` is the whole file."""
    *texts, kind, flags, _, numel = ROW.unpack_from(data, ROWS_AT + row * ROW.size)
    name, shape, dtype, placement, peers = (_read_string(data, offset) for offset in texts)
    return Tensor(name, Kind(min(kind, Kind.GRADIENT)), dtype, shape, placement, peers, flags, numel)


def _read_string(data: mmap.mmap, offset: int) -> str:
    if not 0 < offset < STRINGS_SIZE - _STRING.size:
        return ""
    at = STRINGS_AT + offset
    (length,) = _STRING.unpack_from(data, at)
    return data[at + _STRING.size : min(at + _STRING.size + length, SAMPLES_AT)].decode("utf-8", "replace")
