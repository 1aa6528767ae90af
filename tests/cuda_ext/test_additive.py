"""The additive digest: vectors that hold for ever, and parts that add up to the whole whatever the split."""

import random
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, product

import pytest
import torch
from tests.cuda_ext.test_paths import FLOATS, OTHERS, of_dtype, raw, views

from diagd.cuda_ext import adder, adding, additive, blocks, compiled
from diagd.cuda_ext.adding import Block, begin, block_at, run_at, whole
from diagd.cuda_ext.definition import MASK, finish, self_test_bytes

# Whoever changes one of these has changed the definition: digests that were kept mean nothing any more.
VECTORS = [
    (b"", 4, 0x48218226FF3CD4BF),
    (b"\0", 1, 0x67BBC0BC280AA6F5),
    (b"\0\0", 1, 0xA0BD186CAC4BCDE5),
    (b"\0\0", 2, 0xA0D979B092A1AFD2),
    (bytes(range(64)), 4, 0xDCE79289DED5CEDD),
    (bytes(range(64)), 8, 0x0A415D7B8593E458),
    (b"\xff" * 64, 2, 0x1855078DF2DA2BC4),
]
SEED = 7


def reference(tensor: torch.Tensor) -> int:
    data, size = raw(tensor), min(tensor.element_size(), 8)
    return finish(additive.total(data, size, range(len(data) // size)), len(data))


@pytest.fixture(params=("torch", "compiled"))
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the ways on a CPU; a device has that of torch."""
    use: adder.Adder | str = "left out by a test"
    if request.param == "compiled":
        use = adder.Adder(request.getfixturevalue("library"))
    monkeypatch.setattr(adder, "adder", lambda: use)
    monkeypatch.setattr(blocks, "HOST_ELEMENTS", 1000)  # several chunks


@pytest.mark.parametrize(("data", "size", "digest"), VECTORS, ids=lambda value: str(value)[:20])
def test_the_definition_stands(data: bytes, size: int, digest: int) -> None:
    assert finish(additive.total(data, size, range(len(data) // size)), len(data)) == digest


def test_the_self_test_is_of_the_definition() -> None:
    data = self_test_bytes()[: additive.SELF_TEST_BYTES]
    for size, expected in additive.SELF_TEST_TOTALS.items():
        first = additive.SELF_TEST_FIRST
        assert additive.total(data, size, range(first, first + len(data) // size)) == expected


def test_a_library_without_it_or_of_another_definition_is_not_used(
    library: compiled.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="no compiler"):
        adder.Adder("no compiler here")
    monkeypatch.setattr(adder, "SELF_TEST_TOTALS", {4: 1})
    with pytest.raises(ValueError, match="another definition"):
        adder.Adder(library)
    monkeypatch.setattr(library, "_library", object())
    with pytest.raises(ValueError, match="another version"):
        adder.Adder(library)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS], ids=str)
def test_every_dtype_follows_the_definition(dtype: torch.dtype) -> None:
    for size in (0, 1, 7, 513, 2049):
        tensor = of_dtype(dtype, size)
        assert whole(tensor) == reference(tensor), size


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("name", views())
def test_a_view_digests_as_its_copy(name: str) -> None:
    tensor = views()[name]
    assert whole(tensor) == whole(tensor.resolve_conj().resolve_neg().contiguous())


def splits(shape: Sequence[int], chance: random.Random) -> Iterator[tuple[tuple[int, int], ...]]:
    """Boxes that make up the whole: each dimension is cut at random places, some of them twice (nothing in between)."""
    edges = [[0, *sorted(chance.choices(range(extent + 1), k=chance.randrange(4))), extent] for extent in shape]
    return product(*(pairwise(cuts) for cuts in edges))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32, torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("shape", [(97,), (13, 31), (5, 1, 17, 6), (64, 64)])
def test_parts_add_up_to_the_whole_however_it_is_split(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    chance = random.Random(f"{SEED} {shape}")
    tensor = of_dtype(dtype, torch.Size(shape).numel()).view(shape)
    nbytes = tensor.numel() * tensor.element_size()
    for trial in range(6):
        seen = tensor if trial % 2 else tensor.mT.contiguous().mT if len(shape) > 1 else tensor  # where they lie is one
        boxes = list(splits(shape, chance))
        parts = [
            [block_at(seen[tuple(slice(*edge) for edge in box)], [first for first, _ in box], shape)] for box in boxes
        ]
        assert adding.digest(sum(begin(parts).result()), nbytes) == reference(tensor)
        assert begin([list(chain(*parts))]).result()[0] == sum(begin(parts).result()) & MASK


@pytest.mark.usefixtures("path")
def test_runs_of_the_flat_tensor_add_up_likewise() -> None:
    tensor = of_dtype(torch.float32, 35 * 101).view(35, 101)
    cuts = [0, *sorted(random.Random(SEED).choices(range(tensor.numel()), k=9)), tensor.numel()]
    parts = [[run_at(tensor.view(-1)[a:b], a)] for a, b in pairwise(cuts)]
    assert adding.digest(sum(begin(parts).result()), 4 * tensor.numel()) == reference(tensor)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("size", [1, 4, 8])
def test_each_flipped_bit_and_each_exchange_of_two_elements_shows(size: int) -> None:
    data = random.Random(SEED).randbytes(48)
    integers = {1: torch.uint8, 4: torch.int32, 8: torch.int64}[size]

    def taken(changed: bytearray) -> int:
        return whole(torch.frombuffer(changed, dtype=integers))

    seen = [taken(bytearray(data))]
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        seen.append(taken(changed))
    elements = [data[at : at + size] for at in range(0, len(data), size)]
    for one in range(len(elements)):
        for other in range(one):
            moved = list(elements)
            moved[one], moved[other] = moved[other], moved[one]
            if moved != elements:
                seen.append(taken(bytearray(b"".join(moved))))
    assert len(set(seen)) == len(seen)


def test_zeros_of_other_numbers_and_a_shift_by_one_place_show() -> None:
    assert len({whole(torch.zeros(count)) for count in range(200)}) == 200
    data = torch.arange(100.0)
    assert whole(data) != whole(data.roll(1))


def test_what_has_no_bytes_is_refused(path: None) -> None:
    with pytest.raises(TypeError):
        begin([[Block(torch.empty(2, device="meta"), 0, (1,))]])
