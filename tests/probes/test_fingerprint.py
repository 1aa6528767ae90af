"""Fingerprints: equal for equal inputs, unequal for any others, and cheap by reading little."""

from collections import UserDict
from typing import Any

import pytest
import torch

from diagd.probes import fingerprint


def of(value: Any) -> int | None:
    told: list[int] = []
    return told[0] if fingerprint.take(value, told.append) else None


IMAGES = torch.arange(4 * 3 * 64 * 64, dtype=torch.float32).reshape(4, 3, 64, 64)
TOKENS = torch.arange(8 * 513).reshape(8, 513)
INPUTS = [
    torch.tensor(3.0),
    torch.tensor([True, False]),
    torch.randn(5, 7),
    IMAGES,
    IMAGES.to(memory_format=torch.channels_last),
    IMAGES.bfloat16(),
    TOKENS[:, :-1],
    TOKENS.t(),
    torch.ones(3, 1).expand(3, 4000),
    (torch.ones(2), {"y": [torch.zeros(2)]}),
    UserDict({"ids": TOKENS}),
]


@pytest.mark.parametrize("value", INPUTS, ids=range(len(INPUTS)))
def test_it_is_the_same_for_the_same_content_and_fits_a_float(value: Any) -> None:
    found = of(value)
    assert found is not None
    assert found == of(value)
    assert int(float(found)) == found < 2**52


def test_others_differ_in_content_shape_or_type() -> None:
    found = [
        of(value) for value in (*INPUTS, torch.randn(5, 7), torch.zeros(6), torch.zeros(2, 3), torch.zeros(6).int())
    ]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("row", range(4))
def test_each_part_of_a_large_batch_counts(row: int) -> None:
    before, changed = of(IMAGES), IMAGES.clone()
    changed[row] += 1
    assert of(changed) != before


def test_what_holds_no_plain_tensor_has_none() -> None:
    class Odd:
        def __iter__(self) -> Any:
            raise AssertionError("no code of the script's is run")

    assert of((3, "text", None, Odd(), torch.zeros(0), torch.ones(2).to_sparse())) is None
    assert of([[[[torch.ones(2)]]]]) is None
    assert of([Odd(), torch.ones(2)]) == of(torch.ones(2))
