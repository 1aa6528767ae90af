"""Which samples a batch is made of: short hashes of its first rows, for the aggregator to see whether ranks share some.

    data/rows    fact: "12=a1b2c3d4…;13=…", for some steps in a row 4 hexadecimal digits for each row

Of a batch that a DataLoader gives, and where there is none of what goes into the model, as far as it lies on the CPU.
"""

import ctypes
import zlib
from collections import deque
from typing import Any

from diagd.probes import fingerprint
from diagd.probes.signals import SIGNALS

ROWS, LEAST = 24, 6
BYTES = 256  # of a row, at either end
TOKEN = 8  # bytes, at most: rows that hold no more are parts of a sample (packed tokens), and come again in any other
FIRST, LOOKS = 4, 8  # steps in a row are looked at, from the fourth on
EVERY = 256  # and again


class _Rows:
    """Of this process."""

    def __init__(self) -> None:
        self.step = -1
        self.looks: deque[str] = deque(maxlen=LOOKS)


SEEN = _Rows()


def is_due(step: int) -> bool:
    """Whether batches of this step are looked at."""
    return FIRST <= step % EVERY < FIRST + LOOKS


def look(value: Any, step: int) -> None:
    """Hash the rows of the first batch of a step, from 0, that is handed here."""
    if not is_due(step) or step == SEEN.step:
        return
    hashes = _hashes(fingerprint.tensors(value))
    if not hashes:
        return
    if step != SEEN.step + 1:
        SEEN.looks.clear()
    SEEN.step = step
    SEEN.looks.append(f"{step + 1}={''.join(hashes)}")
    if len(SEEN.looks) == LOOKS or step % EVERY == FIRST + LOOKS - 1:
        SIGNALS.fact("data/rows", ";".join(SEEN.looks), step + 1)


def _hashes(tensors: list[Any]) -> list[str]:
    """Of all tensors that have as many rows as the first of them."""
    sized = [tensor for tensor in tensors if tensor.dim()]
    rows = int(sized[0].shape[0]) if sized else 0
    mine = [tensor for tensor in sized if tensor.shape[0] == rows]
    readable = all(tensor.device.type == "cpu" and tensor.is_contiguous() for tensor in mine)
    if rows < LEAST or not readable:
        return []
    places = [(tensor.data_ptr(), tensor.numel() // rows * tensor.element_size()) for tensor in mine]
    if sum(length for _, length in places) <= TOKEN:
        return []
    return [f"{_hash(places, row):04x}" for row in range(min(rows, ROWS))]


def _hash(places: list[tuple[int, int]], row: int) -> int:
    found = 0
    for start, length in places:
        begin, most = start + row * length, min(length, BYTES)
        found = zlib.crc32(ctypes.string_at(begin, most), found)
        if length > most:
            found = zlib.crc32(ctypes.string_at(begin + length - most, most), found)
    return found & 0xFFFF
