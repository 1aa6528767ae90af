"""The digest in plain torch operations: for machines without the compiled path, and for GPUs without the kernel.

On a CPU block by block, in buffers that stay in the cache. On a device many blocks at once, without waiting for it.
"""

from functools import cache
from typing import NamedTuple

import torch

from diagd.cuda_ext.definition import BLOCK, BLOCK_BYTES, GOLDEN, block, keys
from diagd.cuda_ext.elements import KINDS
from diagd.cuda_ext.sums import Sums

DEVICE_BLOCKS = 8  # at once: 2 MiB of the tensor, and with bfloat16 at most 32 MiB of buffers
_EXACT = 1e-12, 1e15  # between these a block's squares can be summed in float32
_DTYPES = {kind: dtype for dtype, kind in KINDS.items()}


class _Magnitude(NamedTuple):
    """How to read magnitudes off the bits, which compare as the values do: the integers, the mask and the infinity."""

    dtype: torch.dtype
    word_mask: int
    infinity: int


_MAGNITUDES = {
    1: _Magnitude(torch.int32, 0x7FFFFFFF_7FFFFFFF, 0x7F800000),
    2: _Magnitude(torch.int64, 0x7FFFFFFF_FFFFFFFF, 0x7FF00000_00000000),
    3: _Magnitude(torch.int16, 0x7FFF7FFF_7FFF7FFF, 0x7C00),
    4: _Magnitude(torch.int16, 0x7FFF7FFF_7FFF7FFF, 0x7F80),
}


def signed(value: int) -> int:
    """The int64 of the same bits."""
    return (value + 2**63) % 2**64 - 2**63


@cache
def _keys(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.tensor([[signed(key), signed(odd)] for key, odd in keys()], dtype=torch.int64)
    return both[:, 0].contiguous().to(device), both[:, 1].contiguous().to(device)


def on_host(flat: torch.Tensor, first_block: int, kind: int) -> Sums:
    """The sums of a flat, contiguous CPU tensor that begins a block; kind 0 leaves out the statistics."""
    data = flat.view(torch.uint8)
    size = min(BLOCK, -(-data.numel() // 8))
    x, t, spare = torch.empty(3, size, dtype=torch.int64)
    total, nonfinite, square_sum, absmax = Sums()
    for index, start in enumerate(range(0, data.numel(), BLOCK_BYTES), first_block):
        words = _words(data[start : start + BLOCK_BYTES], spare)
        total += _block_on_host(words, x[: words.numel()], t[: words.numel()], index)
        if kind:
            bad, squares, largest = _statistics_on_host(words, t[: words.numel()], kind)
            nonfinite, square_sum, absmax = nonfinite + bad, square_sum + squares, max(absmax, largest)
    return Sums(total, nonfinite, square_sum, absmax)


def _words(data: torch.Tensor, spare: torch.Tensor) -> torch.Tensor:
    """The bytes as words: in place where they can be read so, else a copy, filled up with zeros."""
    if data.numel() % 8 == 0 and data.storage_offset() % 8 == 0:
        return data.view(torch.int64)
    words = spare[: -(-data.numel() // 8)]
    words[-1] = 0
    words.view(torch.uint8)[: data.numel()].copy_(data)
    return words


def _block_on_host(words: torch.Tensor, x: torch.Tensor, t: torch.Tensor, index: int) -> int:
    key, odd = _keys(words.device)
    torch.bitwise_xor(words, key[: words.numel()], out=x)
    torch.bitwise_right_shift(x, 32, out=t)
    return block(int(torch.dot(x, t)), int(torch.dot(x, odd[: words.numel()])), index)


def _statistics_on_host(words: torch.Tensor, t: torch.Tensor, kind: int) -> tuple[int, float, float]:
    magnitude = _MAGNITUDES[kind]
    torch.bitwise_and(words, magnitude.word_mask, out=t)
    largest = t.view(magnitude.dtype).amax()
    values = words.view(_DTYPES[kind])
    if int(largest) >= magnitude.infinity:
        finite = values.double().nan_to_num(0.0, 0.0, 0.0)
        return int((~values.isfinite()).sum()), float(torch.dot(finite, finite)), float(finite.abs().amax())
    absmax = float(largest.view(_DTYPES[kind]))
    if kind != 2:
        values = values.float() if _EXACT[0] < absmax < _EXACT[1] else values.double()
    return 0, float(torch.dot(values, values)), absmax


def on_device(flat: torch.Tensor, first_block: int, kind: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same on any device, nothing read back: int64 [ΣF, nonfinite] and float64 [square_sum, absmax]."""
    data = flat.view(torch.uint8)
    whole = data.numel() // BLOCK_BYTES * BLOCK_BYTES
    counts = torch.zeros(2, dtype=torch.int64, device=flat.device)
    values = torch.zeros(2, dtype=torch.float64, device=flat.device)
    step = DEVICE_BLOCKS * BLOCK_BYTES
    bounds = [(start, min(start + step, whole)) for start in range(0, whole, step)]
    for start, stop in [*bounds, *([(whole, data.numel())] if data.numel() > whole else [])]:
        spare = torch.empty(min(stop - start + 7, step) // 8, dtype=torch.int64, device=flat.device)
        words = _words(data[start:stop], spare)
        rows = words.view(max(1, (stop - start) // BLOCK_BYTES), -1)
        counts[0] += _blocks_on_device(rows, first_block + start // BLOCK_BYTES).sum()
        if kind:
            _add_statistics(words.view(_DTYPES[kind]), counts, values)
    return counts, values


def _blocks_on_device(rows: torch.Tensor, first_block: int) -> torch.Tensor:
    """F of each row of words, int64 [rows], the rows being blocks from the first on."""
    key, odd = _keys(rows.device)
    x = rows ^ key[: rows.shape[1]]
    a = (x * (x >> 32)).sum(1)
    b = x.mul_(odd[: rows.shape[1]]).sum(1)
    place = torch.arange(len(rows), device=rows.device) + (first_block + 1)
    return mixed(b + mixed(a + place * signed(GOLDEN)))


def mixed(value: torch.Tensor) -> torch.Tensor:
    """`mix` of each, int64."""
    value = (value ^ _shifted(value, 30)) * signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shifted(value, 27)) * signed(0x94D049BB133111EB)
    return value ^ _shifted(value, 31)


def _shifted(value: torch.Tensor, places: int) -> torch.Tensor:
    """To the right, with zeros coming in (torch's own shift copies the sign)."""
    return (value >> places) & ((1 << (64 - places)) - 1)


def _add_statistics(elements: torch.Tensor, counts: torch.Tensor, values: torch.Tensor) -> None:
    finite = elements.double().nan_to_num(0.0, 0.0, 0.0)
    counts[1] += (~elements.isfinite()).sum()
    values[0] += (finite * finite).sum()
    values[1] = torch.maximum(values[1], finite.abs().amax())
