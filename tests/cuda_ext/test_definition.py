"""The definition itself: vectors that hold for ever, and that each kind of change shows."""

import random

import pytest

from diagd.cuda_ext import definition
from diagd.cuda_ext.definition import BLOCK_BYTES, of_bytes

SEED = 5

# Whoever changes one of these has changed the definition: digests that were kept mean nothing any more.
VECTORS = [
    (b"", 0x48218226FF3CD4BF),
    (b"\0", 0xF9D726B09D21B727),
    (b"\0\0", 0xAE094A4B0B0227C2),
    (b"diagd", 0xAAB7DE04839002D9),
    (bytes(range(64)), 0x766A075911E817D4),
    (b"\xff" * 64, 0xEC74FA739AA9347B),
    (b"\0" * BLOCK_BYTES, 0xE68BFB9AAB0EAB52),
    (b"\0" * (BLOCK_BYTES + 8), 0xD2181FD47A67D795),
]


@pytest.mark.parametrize(("data", "digest"), VECTORS, ids=lambda value: str(value)[:20])
def test_the_definition_stands(data: bytes, digest: int) -> None:
    assert of_bytes(data) == digest


def test_the_self_test_is_of_the_definition() -> None:
    data = definition.self_test_bytes()
    assert len(data) == definition.SELF_TEST_BYTES
    assert of_bytes(data) == definition.SELF_TEST_DIGEST


def test_each_flipped_bit_shows() -> None:
    data = random.Random(SEED).randbytes(67)
    seen = {of_bytes(data)}
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        seen.add(of_bytes(bytes(changed)))
    assert len(seen) == 8 * len(data) + 1


def test_two_flipped_bits_show_where_each_alone_would_weigh_least() -> None:
    """The topmost bits of words: in a sum of products they would cancel."""
    data = random.Random(SEED).randbytes(8 * 24)
    pairs = [(bit + 64 * i, bit + 64 * j) for bit in (61, 62, 63) for i in range(24) for j in range(i)]
    seen = {of_bytes(data)}
    for pair in pairs:
        changed = bytearray(data)
        for bit in pair:
            changed[bit // 8] ^= 1 << bit % 8
        seen.add(of_bytes(bytes(changed)))
    assert len(seen) == len(pairs) + 1


def test_lengths_of_zeros_show() -> None:
    assert len({of_bytes(bytes(length)) for length in range(130)}) == 130


def test_two_blocks_that_change_places_show() -> None:
    one, other = (random.Random(seed).randbytes(BLOCK_BYTES) for seed in (1, 2))
    assert of_bytes(one + other) != of_bytes(other + one)


def test_one_flipped_bit_changes_about_half_of_the_digest() -> None:
    data = random.Random(SEED).randbytes(80)
    changes = []
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        changes.append((of_bytes(data) ^ of_bytes(bytes(changed))).bit_count())
    assert 31 < sum(changes) / len(changes) < 33
    assert min(changes) > 10
