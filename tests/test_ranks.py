"""How ranks are written."""

import pytest

from diagd.daemon.ranks import rank_ranges


@pytest.mark.parametrize(
    ("ranks", "text"), [([], ""), ([5], "5"), ([1, 0], "0,1"), ([0, 1, 2, 4, 6, 7], "0-2,4,6,7"), ([3, 3], "3")]
)
def test_ranks_are_written_as_ranges(ranks: list[int], text: str) -> None:
    assert rank_ranges(ranks) == text


@pytest.mark.parametrize(
    ("ranks", "text"), [([], "no rank"), ([5], "rank 5"), ([0, 1], "ranks 0,1"), ([0, 1, 2, 3], "ranks 0-3")]
)
def test_ranks_are_named(ranks: list[int], text: str) -> None:
    assert rank_ranges(ranks, named=True) == text
