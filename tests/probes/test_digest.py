"""The digest: every bit counts, and where it stands."""

from collections.abc import Callable

import pytest
import torch

from diagd.probes import digest

SIZES = (1, 7, 1000, 8191, 8192, 5000 * 3)


def bits(tensor: torch.Tensor) -> int:
    pending = digest.begin(tensor)
    assert pending is not None
    assert pending.ready()
    return pending.bits()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_equal_bytes_give_equal_digests_and_any_flipped_bit_another(dtype: torch.dtype, size: int) -> None:
    held = torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(size)).to(dtype)
    whole = bits(held)
    assert bits(held.clone()) == whole
    if dtype is torch.bool:
        return
    raw = held.view(torch.uint8) if not held.is_complex() else torch.view_as_real(held).view(torch.uint8).view(-1)
    for place in {0, raw.numel() // 3, raw.numel() // 2 + 3, raw.numel() - 1}:
        for bit in (0, 7):
            raw[place % raw.numel()] ^= 1 << bit
            assert bits(held) != whole
            raw[place % raw.numel()] ^= 1 << bit
    assert bits(held) == whole


def _swapped(rows: torch.Tensor) -> torch.Tensor:
    other = rows.clone()
    other[[0, 3]] = rows[[3, 0]]
    return other


@pytest.mark.parametrize(
    "change",
    [
        _swapped,
        lambda t: _swapped(t.t()).t(),
        lambda t: t.flip(0),
        lambda t: torch.nextafter(t, t + 1),
        lambda t: t.to(torch.bfloat16),
        lambda t: t.reshape(2048, 64),
    ],
    ids=["two rows swapped", "two columns swapped", "turned over", "an ulp", "another dtype", "another shape"],
)
def test_what_is_laid_out_or_rounded_otherwise_is_not_the_same(change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    held = torch.randn(64, 2048, generator=torch.Generator().manual_seed(1))
    assert bits(change(held)) != bits(held)


def test_constants_differ_and_so_do_kinds_of_nan() -> None:
    found = {bits(torch.full((4096,), value)) for value in (0.0, -0.0, 1.0, 3.7, float("nan"))}
    other_nan = torch.full((4096,), 0x7FC00001, dtype=torch.int32).view(torch.float32)
    assert len({*found, bits(other_nan)}) == 6


def test_a_view_gives_the_digest_of_its_elements_wherever_they_lie() -> None:
    flat = torch.randn(20_001)
    assert bits(flat[1:]) == bits(flat[1:].clone())
    square = torch.randn(50, 60)
    assert bits(square.t()) == bits(square.t().contiguous())
