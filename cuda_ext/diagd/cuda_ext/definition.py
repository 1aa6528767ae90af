"""What a digest is: 64 bits of the bytes of a tensor's elements in row-major order, the same on every path and device.

The bytes are read as little-endian words of 8 bytes, the last one filled up with zeros, in blocks of BLOCK words. All
arithmetic is modulo 2^64, so no order of summation changes a result. With j a word's place in its block, b the block's:

    K_j = (j + 1) · GOLDEN               L_j = (K_j ^ (K_j >> 32)) | 1
    x_j = w_j ^ K_j                      t_j = x_j >> 32, signed (the sign is copied in)
    A_b = Σ x_j · t_j                    B_b = Σ x_j · L_j
    F_b = mix(B_b + mix(A_b + (b + 1) · GOLDEN))
    digest = mix(Σ F_b + mix(number of bytes + GOLDEN))

B alone tells any two blocks apart that differ in one word, since L is odd, but is nearly blind to the topmost bits of
two; A, which is not linear, sees those. Two different tensors agree by chance with a probability near 2^-64; at worst,
where they differ in nothing but the topmost bits of words (signs of two float64 values), with one near 2^-33. It is no
cryptographic hash: it is made for faults, not for forgers. Neither dtype nor shape enters: who compares must compare
them as well. `mix` is the finaliser of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", 2014), in Stafford's variant 13; GOLDEN is 2^64 over the golden ratio, made odd.
"""

from collections.abc import Iterator

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
BLOCK = 1 << 15  # words
BLOCK_BYTES = 8 * BLOCK

# What each path must give for SELF_TEST before it is used: three blocks, the last with a part of a word.
SELF_TEST_BYTES = 2 * BLOCK_BYTES + 12_345
SELF_TEST_DIGEST = 0x5E55630F90C2580C


def mix(value: int) -> int:
    """Spread each bit of a 64-bit value over all; different values stay different."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def block(a: int, b: int, index: int) -> int:
    """F of the block at `index` from its two sums (of any sign)."""
    return mix((b + mix((a + (index + 1) * GOLDEN) & MASK)) & MASK)


def finish(total: int, nbytes: int) -> int:
    """The digest from ΣF (of any sign) and the length in bytes."""
    return mix((total + mix((nbytes + GOLDEN) & MASK)) & MASK)


def keys() -> Iterator[tuple[int, int]]:
    """Each K and L of a block, in turn."""
    for place in range(BLOCK):
        key = (place + 1) * GOLDEN & MASK
        yield key, (key ^ (key >> 32)) | 1


def of_bytes(data: bytes) -> int:
    """The digest, word by word in plain Python: the reference for every other path, and a thousand times slower."""
    total = sum(
        block(*_sums(data[start : start + BLOCK_BYTES]), start // BLOCK_BYTES)
        for start in range(0, len(data), BLOCK_BYTES)
    )
    return finish(total, len(data))


def _sums(data: bytes) -> tuple[int, int]:
    a = b = 0
    for start, (key, odd) in zip(range(0, len(data), 8), keys(), strict=False):
        x = int.from_bytes(data[start : start + 8], "little") ^ key
        high = x >> 32
        a += x * (high - (high >> 31 << 32))
        b += x * odd
    return a, b


def self_test_bytes() -> bytes:
    """The bytes of which every path must give SELF_TEST_DIGEST."""
    period = bytes(range(251))  # no multiple of a word: neighbouring words differ
    return (period * (SELF_TEST_BYTES // len(period) + 1))[:SELF_TEST_BYTES]
