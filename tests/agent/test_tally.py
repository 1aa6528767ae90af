"""Operations and waits by group and name: each counted once, however often the rings are read and run over."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagd.daemon.agent.partners import MAX_PARTNERS
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

    def begin(self, op: Op = Op.ALLREDUCE, group: int = 0, at_s: float = 1.0, peer: int = -1) -> int:
        template = self.ring.template((), 0, 1, group, op, 0, 1, 1, 0, 1, peer, 0, 0, 0, (0,) * layout.MAX_DIMS)
        return self.ring.stamp(template, int(at_s * S))

    def returned(self, index: int, at_s: float) -> None:
        self.ring.set(index, FieldIndex.RETURNED, int(at_s * S))

    def extra(self) -> dict[str, float]:
        self.tally.read()
        return self.tally.extra()

    def held(self) -> dict[str, float]:
        self.tally.read()
        return self.tally.held()


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


def test_a_rank_that_only_meets_others_in_groups_tells_of_no_partner(rank: Rank) -> None:
    rank.returned(rank.begin(at_s=1.0, peer=2), 3.0)
    assert rank.held() == {}


def test_what_each_partner_has_held_a_rank_for_is_told_apart_from_the_groups(rank: Rank) -> None:
    rank.returned(rank.begin(Op.RECV, at_s=1.0, peer=3), 1.5)
    rank.returned(rank.begin(Op.RECV, at_s=2.0, peer=3), 2.25)
    rank.returned(rank.begin(Op.SEND, at_s=3.0, peer=3), 3.125)
    rank.returned(rank.begin(Op.RECV, at_s=4.0), 6.0)
    rank.returned(rank.begin(Op.ALLREDUCE, at_s=7.0, peer=3), 8.0)
    assert rank.held() == {
        "held_s|RECV|3": 0.75, "held_s|SEND|3": 0.125, "held_s|RECV|-1": 2.0, "held_s||-1": 1.0, "operations_lost": 0,
    }  # fmt: skip


def test_a_wait_that_lasts_grows_and_is_not_counted_again_when_it_ends(rank: Rank) -> None:
    began_s = time.monotonic() - 5.0
    index = rank.begin(Op.RECV, at_s=began_s, peer=1)
    first = rank.held()["held_s|RECV|1"]
    assert 5.0 <= first <= rank.held()["held_s|RECV|1"]
    rank.returned(index, began_s + 6.0)
    assert rank.held()["held_s|RECV|1"] == pytest.approx(6.0)
    assert rank.held()["held_s|RECV|1"] == pytest.approx(6.0)


def test_a_receive_that_was_only_issued_holds_nobody(rank: Rank) -> None:
    index = rank.begin(Op.RECV, at_s=1.0, peer=1)
    rank.ring.set(index, FieldIndex.ISSUED, int(1.5 * S))
    assert rank.held()["held_s|RECV|1"] == 0.5


def test_partners_beyond_the_bound_are_counted_together(rank: Rank) -> None:
    for peer in range(MAX_PARTNERS + 4):
        rank.returned(rank.begin(Op.SEND, at_s=1.0, peer=peer), 2.0)
        rank.held()
    held = rank.held()
    assert held["held_s|SEND|-1"] == 4
    assert sum(key.startswith("held_s|SEND|") for key in held) == MAX_PARTNERS + 1
