"""Every path follows the definition, for every dtype and every way in which a tensor can lie in memory."""

import math
from collections.abc import Callable

import pytest
import torch
from tests.cuda_ext.conftest import HostKernel, by_device

from diagd.cuda_ext.definition import BLOCK_BYTES, of_bytes
from diagd.cuda_ext.digest import Digest, begin, begin_rows, digest, digest_many, digest_rows
from diagd.cuda_ext.elements import DEVICE_PIECE_BYTES, HOST_PIECE_BYTES

Taken = Callable[[torch.Tensor], Digest]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OTHERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
          torch.uint64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2)  # fmt: skip
SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 63, 511, 513, 4099)
BLOCKS = BLOCK_BYTES // 4


def random_bytes(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def of_dtype(dtype: torch.dtype, count: int) -> torch.Tensor:
    """Random bits as that dtype; bool holds ones and zeros alone."""
    if dtype is torch.bool:
        return random_bytes(count) > 127
    return random_bytes(count * dtype.itemsize).view(dtype)


def raw(tensor: torch.Tensor) -> bytes:
    copy = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return bytes(copy.reshape(-1).view(torch.uint8).tolist())


@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS], ids=str)
def test_every_dtype_and_odd_size_follows_the_definition(taken: Taken, dtype: torch.dtype) -> None:
    for size in SIZES:
        tensor = of_dtype(dtype, size)
        assert taken(tensor).bits == of_bytes(raw(tensor)), size


@pytest.mark.parametrize("count", [BLOCKS - 1, BLOCKS, BLOCKS + 1, 3 * BLOCKS + 5])
def test_the_bounds_of_blocks_follow_the_definition(taken: Taken, count: int) -> None:
    tensor = of_dtype(torch.float32, count)
    assert taken(tensor).bits == of_bytes(raw(tensor))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.float64], ids=str)
@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_a_view_that_begins_between_words_digests_as_its_copy(taken: Taken, dtype: torch.dtype, offset: int) -> None:
    tensor = of_dtype(dtype, 70_000)[offset:-1]
    assert taken(tensor).bits == taken(tensor.clone()).bits == of_bytes(raw(tensor))


def views() -> dict[str, torch.Tensor]:
    base = of_dtype(torch.float32, 3 * 5 * 7 * 11).view(3, 5, 7, 11)
    large = of_dtype(torch.float32, HOST_PIECE_BYTES // 4 + 12_345)
    wide = large[: 3 * (len(large) // 3)].view(3, -1)
    pairs = of_dtype(torch.complex64, 500)
    return {
        "transposed": base.transpose(0, 3),
        "permuted": base.permute(2, 0, 3, 1),
        "strided": base[:, ::2, :, 1::3],
        "expanded": base[:1].expand(4, 5, 7, 11),
        "channels last": base.contiguous(memory_format=torch.channels_last),
        "column": base.view(-1, 11)[:, 3],
        "one element": base[1, 2, 3, 4],
        "large, every second": large[::2],
        "large, transposed": wide.t(),
        "large, long rows": wide[:, 1:],
        "conjugate": pairs.conj(),
        "negative": pairs.conj().imag,
        "empty": base[:0].transpose(0, 1),
    }


@pytest.mark.parametrize("name", views())
def test_a_view_digests_as_its_contiguous_copy(taken: Taken, name: str) -> None:
    tensor = views()[name]
    copy = tensor.resolve_conj().resolve_neg().contiguous()
    found, expected = taken(tensor), taken(copy)
    assert found.bits == expected.bits == of_bytes(raw(tensor))
    assert (found.nonfinite, found.absmax) == (expected.nonfinite, expected.absmax)


def test_digests_of_many_are_those_of_each(taken: Taken) -> None:
    tensors = [*views().values(), *(of_dtype(dtype, 1001) for dtype in (*FLOATS, *OTHERS))]
    assert [one.bits for one in digest_many(tensors)] == [taken(tensor).bits for tensor in tensors]
    assert digest_many([]) == []


def test_a_row_digests_as_a_tensor_of_its_own(taken: Taken) -> None:
    tensor = of_dtype(torch.bfloat16, 7 * 13 * 3).view(7, 13, 3)
    for one in (tensor, tensor.permute(1, 2, 0)):
        assert [row.bits for row in digest_rows(one)] == [taken(row.clone()).bits for row in one]


def test_runs_of_rows_digest_as_tensors_of_their_own(taken: Taken) -> None:
    tensor = of_dtype(torch.bfloat16, 7 * 13 * 3).view(7, 13, 3)
    for one in (tensor, tensor.permute(1, 2, 0)):
        found = begin_rows(one, [0, 1, 4, 7]).result()
        assert [run.bits for run in found] == [taken(one[a:b].clone()).bits for a, b in ((0, 1), (1, 4), (4, 7))]


@pytest.mark.parametrize("edges", [[0, 8], [2, 2], [-1, 3], [3, 1]])
def test_rows_that_a_tensor_does_not_have_are_refused(edges: list[int]) -> None:
    with pytest.raises(ValueError, match="no rows between"):
        begin_rows(torch.ones(7, 2), edges)
    with pytest.raises(ValueError, match="no rows between"):
        begin_rows(torch.tensor(1.0), [0, 1])


def test_what_is_begun_on_a_cpu_is_done(taken: Taken) -> None:
    tensors = [of_dtype(torch.float32, 100), of_dtype(torch.float16, 7)]
    pending = begin(tensors)
    assert pending.ready()
    assert [one.bits for one in pending.result()] == [taken(tensor).bits for tensor in tensors]


def test_many_tensors_go_to_a_device_in_one_launch(kernel: HostKernel) -> None:
    tensors = [of_dtype(dtype, count) for dtype in (*FLOATS, *OTHERS) for count in (0, 1, 1003, BLOCK_BYTES + 9, 0)]
    before = kernel.launches
    assert [one.bits for one in by_device(tensors, kernel)] == [one.bits for one in digest_many(tensors)]
    assert kernel.launches == before + 1


def test_results_from_a_device_come_in_the_callers_order(kernel: HostKernel) -> None:
    tensors = [one for view in views().values() for one in (view, of_dtype(torch.float16, 77))]
    for launches in (kernel, None):
        assert [one.bits for one in by_device(tensors, launches)] == [one.bits for one in digest_many(tensors)]


def test_pieces_end_where_blocks_do() -> None:
    assert HOST_PIECE_BYTES % BLOCK_BYTES == DEVICE_PIECE_BYTES % BLOCK_BYTES == 0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 0.0])
def test_statistics_are_those_of_the_finite_elements(taken: Taken, dtype: torch.dtype, scale: float) -> None:
    tensor = (torch.randn(200_003, generator=torch.Generator().manual_seed(1)) * scale).to(dtype)
    clean = taken(tensor)
    exact = tensor.double().clone()
    assert clean.nonfinite == 0
    assert clean.absmax == float(exact.abs().max())
    assert clean.square_sum == pytest.approx(float((exact * exact).sum()), rel=1e-4)
    tensor[7], tensor[70_000], tensor[-1] = math.nan, math.inf, -math.inf
    exact[[7, 70_000, -1]] = 0
    dirty = taken(tensor)
    assert dirty.nonfinite == 3
    assert dirty.absmax == float(exact.abs().max())
    assert dirty.square_sum == pytest.approx(float((exact * exact).sum()), rel=1e-4)


@pytest.mark.parametrize("value", [1e-30, 3e-42, 1e30, 3e38])
def test_squares_beyond_float32_are_summed_all_the_same(taken: Taken, value: float) -> None:
    tensor = torch.full((1000,), value)
    exact = float(tensor[0].double())
    found = taken(tensor)
    assert found.square_sum == pytest.approx(1000 * exact * exact, rel=1e-6)
    assert found.absmax == exact


def test_every_half_is_read_as_it_is(taken: Taken) -> None:
    every = torch.arange(-(2**15), 2**15).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        for bits in every[::97]:
            tensor = bits.reshape(1).view(dtype)
            finite = bool(tensor.isfinite())
            assert taken(tensor).nonfinite == int(not finite)
            assert taken(tensor).absmax == (float(tensor.abs()) if finite else 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_tensor_is_only_read(taken: Taken, dtype: torch.dtype) -> None:
    tensor = of_dtype(dtype, 5003)  # random bits: NaN and infinity among them
    version, before = tensor._version, raw(tensor)
    taken(tensor)
    assert (tensor._version, raw(tensor)) == (version, before)


def test_other_dtypes_have_no_statistics(taken: Taken) -> None:
    assert taken(torch.arange(5))[1:] == (None, None, None)
    assert digest(torch.ones(5), statistics=False) == (taken(torch.ones(5)).bits, None, None, None)
