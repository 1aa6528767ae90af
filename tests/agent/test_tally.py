"""Operations and waits by group and name: each counted once, however often the rings are read and run over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diagd.daemon.agent.tally import MAX_GROUPS, OTHER, Tally
from diagd.probes.box import layout
from diagd.probes.box.layout import FieldIndex, Op
from diagd.probes.box.reader import BoxReader
from diagd.probes.box.writer import BoxWriter, RingWriter

S = 1_000_000_000


class Rank:
    """A box with one ring."""

    def __init__(self, path: Path) -> None:
        self.writer = BoxWriter(path)
        self.writer.set_text(layout.GROUPS, {"groups": [{"index": i, "name": f"g{i}"} for i in range(20)]})
        ring = self.writer.ring()
        assert ring is not None
        self.ring: RingWriter = ring
        self.reader = BoxReader(path)
        self.tally = Tally(path, self.reader)

    def begin(self, op: Op = Op.ALLREDUCE, group: int = 0, at_s: float = 1.0) -> int:
        template = self.ring.template((), 0, 1, group, op, 0, 1, 1, 0, 1, -1, 0, 0, 0, (0,) * layout.MAX_DIMS)
        return self.ring.stamp(template, int(at_s * S))

    def returned(self, index: int, at_s: float) -> None:
        self.ring.set(index, FieldIndex.RETURNED, int(at_s * S))

    def extra(self) -> dict[str, float]:
        self.tally.read()
        return self.tally.extra()


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    made = Rank(tmp_path / "1.box")
    yield made
    made.reader.close()


def test_an_operation_counts_when_it_begins_and_its_wait_when_it_ends(rank: Rank) -> None:
    first = rank.begin(at_s=1.0)
    assert rank.extra() == {"operations|g0|ALLREDUCE": 1}
    assert rank.extra() == {"operations|g0|ALLREDUCE": 1}
    rank.returned(first, 3.5)
    rank.returned(rank.begin(Op.BARRIER, 1, at_s=4.0), 4.25)
    wanted = {
        "operations|g0|ALLREDUCE": 1,
        "operations|g1|BARRIER": 1,
        "operation_wait_s|g0|ALLREDUCE": 2.5,
        "operation_wait_s|g1|BARRIER": 0.25,
    }
    assert rank.extra() == wanted
    assert rank.extra() == wanted


def test_of_an_asynchronous_operation_only_the_call_and_the_wait_count(rank: Rank) -> None:
    index = rank.begin(at_s=1.0)
    rank.ring.set(index, FieldIndex.ISSUED, int(1.5 * S))
    rank.ring.set(index, FieldIndex.WAIT, 6 * S)
    rank.returned(index, 7.0)
    assert rank.extra()["operation_wait_s|g0|ALLREDUCE"] == 1.5


def test_of_a_ring_that_was_run_over_the_lost_ones_count_without_their_names(rank: Rank) -> None:
    rank.begin()
    rank.extra()
    for _ in range(layout.RING_RECORDS + 100):
        rank.returned(rank.begin(at_s=1.0), 2.0)
    assert rank.extra()["operations|g0|ALLREDUCE"] == 1 + layout.RING_RECORDS
    assert rank.extra()[f"operations|{OTHER}|{OTHER}"] == 100
    assert rank.extra()["operation_wait_s|g0|ALLREDUCE"] == layout.RING_RECORDS


def test_groups_beyond_the_bound_are_counted_together(rank: Rank) -> None:
    for group in range(20):
        rank.begin(group=group)
    extra = rank.extra()
    assert len(extra) == MAX_GROUPS + 1
    assert extra[f"operations|{OTHER}|ALLREDUCE"] == 20 - MAX_GROUPS
    assert sum(extra.values()) == 20


def test_an_operation_without_a_group_or_of_a_newer_probe_counts(rank: Rank) -> None:
    rank.ring.stamp(rank.ring.template((), 0, 1, -1, 200, 0, 0, 0, 0, 0, -1, 0, 0, 0, (0,) * layout.MAX_DIMS), S)
    assert rank.extra() == {"operations||OTHER": 1}
