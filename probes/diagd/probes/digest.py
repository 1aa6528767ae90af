"""What a tensor holds, in 64 bits that depend on every bit of it and on where it stands; the one place that knows how.

The bytes are taken as words of 64 bits. Full rows of a fixed width are added up by column and by row, and both sums
are weighted by odd numbers that differ from place to place, all modulo 2**64: a flipped bit, two swapped rows
or columns, ones for zeros and another NaN all change it. Two reads of the memory, and no copy of it.
"""

import sys
import zlib
from typing import Any

WIDTH = 1024
_MAX_COPY = 64 * 1024 * 1024  # bytes: a strided tensor up to here is laid out anew, a larger one is left alone
_ODD = -7046029254386353131  # 2**64 over the golden ratio, made odd and signed
_MASK = (1 << 64) - 1
_weights: dict[tuple[Any, int], Any] = {}


class Pending:
    """A digest that is under way; on a device it is there only later."""

    __slots__ = ("_event", "_sum", "_what")

    def __init__(self, total: Any, what: int, event: Any) -> None:
        self._sum = total
        self._what = what
        self._event = event

    def ready(self) -> bool:
        """Whether `bits` does not have to wait; never waits itself."""
        return self._event is None or bool(self._event.query())

    def bits(self) -> int:
        """The digest, as a signed 64-bit number."""
        mixed = (int(self._sum.item()) ^ self._what * 0x9E3779B97F4A7C15) & _MASK
        return mixed - (1 << 64) if mixed >> 63 else mixed


def begin(tensor: Any) -> Pending | None:
    """Start to digest a plain tensor where it lies; None where it cannot be read there.

    It communicates with nobody and waits for no device.
    """
    torch = sys.modules["torch"]
    data = tensor.detach()
    if not data.is_contiguous():
        if data.numel() * data.element_size() > _MAX_COPY:
            return None
        data = data.contiguous()
    if data.dtype.is_complex:
        data = torch.view_as_real(data)
    if data.data_ptr() % 8:  # a view into the middle of something: a copy begins at a whole word
        data = data.clone()
    with torch.no_grad():
        total = _sum(torch, data.reshape(-1).view(torch.uint8))
        what = zlib.crc32(f"{tensor.dtype}{tuple(tensor.shape)}".encode()) | 1
        return _fetched(torch, total, what)


def _sum(torch: Any, flat: Any) -> Any:
    """Of bytes: whole rows of 64-bit words first, then what is left of them byte by byte."""
    whole = flat.numel() // (8 * WIDTH) * (8 * WIDTH)
    tail = flat[whole:]
    words = tail[: tail.numel() // 8 * 8].view(torch.int64)
    rest = tail[words.numel() * 8 :].to(torch.int64)
    last = torch.cat((words, rest))
    total = (last * _weight(torch, flat.device, last.numel())).sum()
    if whole:
        rows = flat[:whole].view(torch.int64).view(-1, WIDTH)
        by_column = rows.sum(0) * _weight(torch, flat.device, WIDTH)
        by_row = rows.sum(1)
        # Each word counts by an odd number on the whole, or a flip of its top bit would be lost.
        total = total * 3 + by_column.sum() * 5 + (by_row * _weight(torch, flat.device, by_row.numel())).sum() * 2
    return total


def _weight(torch: Any, device: Any, size: int) -> Any:
    """At least so many odd numbers; made once for each power of two."""
    room = max(WIDTH, 1 << (size - 1).bit_length())
    made = _weights.get((device, room))
    if made is None:
        places = torch.arange(1, room + 1, dtype=torch.int64, device=device)
        mixed = places * _ODD
        made = _weights[device, room] = (mixed ^ (mixed >> 29)) * _ODD | 1
    return made[:size]


def _fetched(torch: Any, total: Any, what: int) -> Pending:
    """On its way to the host, where it is not there yet."""
    if total.device.type == "cpu":
        return Pending(total, what, None)
    host = torch.empty((), dtype=torch.int64, pin_memory=True)
    host.copy_(total, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return Pending(host, what, event)
