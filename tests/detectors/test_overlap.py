"""Replicas that train on the same samples some rows apart, by short hashes of their batches' rows."""

import random
import zlib
from collections.abc import Callable

import pytest
from tests.detectors.states import Job, job

from diagd.daemon.detectors.finding import Finding

ROWS, STEPS = 24, range(5, 13)

Choose = Callable[[int, int, int], int]  # rank, step, row -> sample


def streams(choose: Choose, ranks: int = 2, groups: dict[str, tuple[int, ...]] | None = None) -> Job:
    """What ranks tell that choose their samples so."""
    made = job(ranks, groups={"0": tuple(range(ranks)), **(groups or {})}).train(*range(ranks)).passes(1.0)
    for rank in range(ranks):
        looks = []
        for step in STEPS:
            rows = (f"{zlib.crc32(b'%d' % choose(rank, step, row)) & 0xFFFF:04x}" for row in range(ROWS))
            looks.append(f"{step}={''.join(rows)}")
        made.state.signals.put_fact(rank, "data/rows", STEPS[-1], ";".join(looks))
        made.state.signals.put_fact(rank, "data/replicas", 1, f"ddp 0:{ranks - 1}:1")
    return made


def found(made: Job) -> list[Finding]:
    return [one for one in made.find() if one.kind == "divergence.data"]


def test_a_stream_that_each_rank_begins_one_row_later_is_told() -> None:
    (one,) = found(streams(lambda rank, step, row: step * 48 + row + rank))
    assert (one.ranks, one.severity.value, one.causes[0].key) == ((0, 1), "warning", "overlap")
    assert "some rows apart" in one.summary


def test_a_rank_that_is_some_batches_ahead_is_told() -> None:
    (one,) = found(streams(lambda rank, step, row: (step + 2 * rank) * ROWS + row, ranks=3))
    assert one.ranks == (0, 1, 2)


def drawn(pool: int) -> Choose:
    return lambda rank, step, row: random.Random(f"{rank} {step} {row}").randrange(pool)


@pytest.mark.parametrize(
    "choose",
    [
        lambda rank, step, row: (step * 48 + row) * 2 + rank,  # each second one
        lambda rank, step, row: rank * 10_000 + step * 48 + row,  # a part of its own
        lambda rank, step, row: step * 48 + row,  # the very same batch: another rule's
        lambda rank, step, row: row if row < 12 else (step * 48 + row) * 2 + rank,  # anchors at the same places
        lambda rank, step, row: row if row < 12 else step * 48 + row + rank,  # anchors, so they are meant to share
        lambda rank, step, row: (
            row - rank if step == 5 and 9 < row < 20 else 10_000 * (rank + 1) + step * 48 + row  # a few, once
        ),
        lambda rank, step, row: 7,  # nothing to know a sample by
        drawn(40),
        drawn(400),
        drawn(8),
        drawn(3),
    ],
)
def test_ranks_with_parts_of_their_own_and_small_datasets_are_in_order(choose: Choose) -> None:
    assert [one.causes[0].key for one in found(streams(choose))] == []


def test_ranks_that_share_samples_in_groups_are_no_replicas_of_one_stream() -> None:
    assert found(streams(lambda rank, step, row: step * 48 + row + rank, ranks=4)) != []
    assert found(streams(lambda rank, step, row: step * 48 + row + rank, ranks=4, groups={"pair": (0, 1)})) == []


@pytest.mark.parametrize("text", ["", "5=", "5=12", "x=1234", "5=12345;;"])
def test_what_is_not_rows_is_passed_over(text: str) -> None:
    made = streams(lambda rank, step, row: step * 48 + row + rank)
    made.state.signals.put_fact(1, "data/rows", 12, text)
    assert found(made) == []
