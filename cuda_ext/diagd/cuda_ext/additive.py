"""The additive digest: 64 bits of a tensor's elements, each with its place, of which parts add up to the whole's.

Elements of 1, 2, 4 or 8 bytes are read as little-endian numbers; one of 16 is two of 8, one behind the other. All
arithmetic is modulo 2^64. With e an element's bits, i its index in the whole tensor in row-major order:

    total = Σ mix(e_i + (i + 1) · GOLDEN)
    digest = mix(total + mix(number of bytes + GOLDEN))

So the totals of any parts that make up the whole, each with its elements' indices in the whole, add up to the whole's,
whatever the split; `digest` (definition.py) knows parts by the place of their blocks, and cannot do that. `mix` loses
nothing of its argument, so two tensors that differ in one element never agree; others agree by chance with a
probability near 2^-64. It costs three multiplications an element, and is for what is asked for, not for each step.
Neither dtype nor shape enters. It is no cryptographic hash: it is made for faults, not for forgers.
"""

from collections.abc import Iterable

from diagd.cuda_ext.definition import GOLDEN, MASK, mix

# What each path must give for the total of SELF_TEST_BYTES (definition.self_test_bytes), by the size of an element.
SELF_TEST_BYTES = 4096
SELF_TEST_FIRST = 2**40 + 7  # index of the first element
SELF_TEST_TOTALS = {
    1: 0xD4196EA05096B0D5, 2: 0x4D21585ACCAB888B, 4: 0xCBB7E2CAFA3F43D3, 8: 0xFE02DCF75A5378EE,
}  # fmt: skip


def total(data: bytes, size: int, indices: Iterable[int]) -> int:
    """Of some elements of so many bytes each (1, 2, 4 or 8), in plain Python: the reference for every other path."""
    starts = range(0, len(data), size)
    elements = (int.from_bytes(data[start : start + size], "little") for start in starts)
    return sum(mix((e + (i + 1) * GOLDEN) & MASK) for e, i in zip(elements, indices, strict=True)) & MASK
