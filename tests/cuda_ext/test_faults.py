"""What a digest is for: each way in which two ranks' copies of a tensor come to differ shows, by every path."""

from collections.abc import Callable

import pytest
import torch

from diagd.cuda_ext.digest import Digest, digest_rows

Taken = Callable[[torch.Tensor], Digest]
Change = Callable[[torch.Tensor], torch.Tensor]
ROWS, COLUMNS = 96, 512  # as bfloat16 a part of a block, as float64 one and a half
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def weight(dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(3)).to(dtype)


def integers(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers of the same size."""
    return tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def flipped(bit: int, *places: tuple[int, int]) -> Change:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        bits, width = integers(tensor), 8 * tensor.element_size()
        for place in places:
            value = 1 << (bit % width)
            bits[place] ^= value - (1 << width) if value >> (width - 1) else value
        return tensor

    return change


def swapped(tensor: torch.Tensor, one: int, other: int) -> torch.Tensor:
    order = torch.arange(len(tensor))
    order[[one, other]] = order[[other, one]]
    return tensor[order]


def swapped_query_and_key(tensor: torch.Tensor) -> torch.Tensor:
    query, key, value = tensor.chunk(3)
    return torch.cat([key, query, value])


FAULTS: dict[str, Change] = {
    "the lowest bit": flipped(0, (17, 33)),
    "the highest bit": flipped(-1, (95, 511)),
    "the signs of two": flipped(-1, (3, 7), (90, 11)),
    "the topmost exponent bits of two": flipped(-2, (3, 7), (67, 7)),
    "two swapped rows": lambda t: swapped(t, 5, 69),
    "two swapped elements": lambda t: swapped(t.view(-1), 0, 9),
    "query and key swapped": swapped_query_and_key,
    "reversed": lambda t: t.flip(1),
    "shifted by one": lambda t: t.view(-1).roll(1),
    "shifted by a row": lambda t: t.roll(1, 0),
    "transposed": lambda t: t.t(),
    "negated": lambda t: -t,
    "one element less": lambda t: t.view(-1)[:-1],
    "one zero more": lambda t: torch.nn.functional.pad(t.view(-1), (0, 1)),
    "negative zero for zero": lambda t: torch.where(t == t[1, 1], -torch.zeros_like(t), t),
    "a row of zeros": lambda t: t.index_fill(0, torch.tensor([40]), 0),
    "rounded": lambda t: t.to(torch.float8_e4m3fn).to(t.dtype),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows(taken: Taken, fault: str, dtype: torch.dtype) -> None:
    right, wrong = weight(dtype), FAULTS[fault](weight(dtype))
    assert taken(wrong).bits != taken(right).bits
    assert taken(weight(dtype)).bits == taken(right).bits


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(1,), (64,), (4096,), (300, 300)], ids=str)
def test_constants_differ(taken: Taken, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    constants = [torch.full(shape, value).to(dtype) for value in ((0, 1) if dtype is torch.bool else (0, 1, -1, 3.7))]
    assert len({taken(constant).bits for constant in constants}) == len(constants)


def test_payloads_of_nan_differ(taken: Taken) -> None:
    bits = torch.tensor([0x7FC00000, 0x7FC00001, 0x7F800001, -0x400000], dtype=torch.int32)
    found = [taken(one.view(torch.float32).expand(10)) for one in bits]
    assert len({one.bits for one in found}) == 4
    assert [one.nonfinite for one in found] == [10] * 4


def test_the_row_that_differs_is_found(taken: Taken) -> None:
    right, wrong = weight(torch.float32), flipped(0, (17, 33))(weight(torch.float32))
    both = zip(digest_rows(right), digest_rows(wrong), strict=True)
    assert [row for row, (one, other) in enumerate(both) if one.bits != other.bits] == [17]
    assert digest_rows(wrong)[17].bits == taken(wrong[17]).bits


def test_no_two_of_many_faults_look_alike(taken: Taken) -> None:
    """Sign flips of two elements, which a weaker sum lets cancel: a thousand different ones, a thousand digests."""
    base = torch.randn(64, dtype=torch.float64)
    seen = {taken(base).bits}
    for i in range(46):
        for j in range(i):
            changed = base.clone()
            changed[[i, j]] *= -1
            seen.add(taken(changed).bits)
    assert len(seen) == 46 * 45 // 2 + 1
