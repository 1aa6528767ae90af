"""In which rows ranks differ: what deserves a closer look, and what an incident says of one."""

from dataclasses import replace

import pytest
from tests.detectors.tensors import Content, ledgers, only, own, same, training

from diagd.daemon.detectors.narrowed import evidence, place, suspects
from diagd.daemon.state.ledger import Entry
from diagd.daemon.state.parts import Span, Where
from diagd.daemon.state.tensors import LedgerNews, TensorInfo

DDP = TensorInfo("Net.head.weight", shape=(4096, 4), placement="ddp", peers=(0, 1, 2))
OTHERS = replace(DDP, name="Net.body.weight"), replace(DDP, name="Net.tail.weight")
PLAIN = replace(DDP, placement="plain", peers=())
SIDES = [[0, 2], [1]]


def where(*spans: Span, unequal: int = 1, parts: int = 64, unit: int = 1) -> Where:
    return Where(97, spans, unit, parts, unequal, SIDES)


def entry(*spans: Span, shape: tuple[int, ...] = (4096, 4), unequal: int = 1, parts: int = 64) -> Entry:
    info = replace(DDP, shape=shape)
    looked_at = where(*spans, unequal=unequal, parts=parts) if spans else None
    return Entry("parameter", DDP.name, DDP.peers, {0: info, 1: info, 2: info}, where=looked_at)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (entry((512, 520)), "rows 512-519 of 4096 (0.2 %)"),
        (entry((517, 518)), "row 517 of 4096 (0.02 %)"),
        (entry((5, 6), (9, 11)), "rows 5, 9-10 of 4096 (0.07 %)"),
        (entry((0, 1), (4, 5), (8, 9), (90, 1000)), "913 rows of 4096 (22 %), between 0 and 999"),
        (entry((3, 4), shape=(64,)), "element 3 of 64 (2 %)"),
        (entry((0, 4096), unequal=64), "all 64 parts"),
        (entry((0, 1), shape=(1,), parts=1), "the element"),
        (entry((0, 1), shape=(1, 8), parts=1), "the row"),
        (entry(), ""),
    ],
)
def test_places_are_said_briefly(found: Entry, text: str) -> None:
    assert place(found) == text


def test_evidence_says_who_differs_and_how_many_parts_were_compared() -> None:
    assert evidence(entry((512, 520))) == (
        "rows 512-519 of 4096 (0.2 %) of Net.head.weight differ after step 97: ranks 0,2 | rank 1; 1 of 64 parts"
        " compared is unequal"
    )
    shard = entry((5, 6))
    shard.infos = {rank: replace(info, placement="dtensor Shard(0)") for rank, info in shard.infos.items()}
    assert "row 5 of 4096 (0.02 %) of the shard here of Net.head.weight differs" in evidence(shard)
    assert evidence(entry()) == ""


def test_a_replica_is_suspected_at_the_first_comparison_and_what_nothing_declares_equal_only_when_it_is_a_finding() -> (
    None
):
    late: Content = only(1, since=65)
    assert [one.name for one in suspects(training({DDP: late, OTHERS[0]: same}).state)] == [DDP.name]
    plain = [replace(PLAIN, name=f"Net.{name}") for name in "abc"]
    assert not suspects(training({PLAIN: late, **dict.fromkeys(plain, same)}).state)
    found = suspects(training({PLAIN: only(1, since=33), **dict.fromkeys(plain, same)}).state)
    assert [one.name for one in found] == [PLAIN.name]


def test_ranks_that_agree_are_not_suspected() -> None:
    assert not suspects(training({DDP: same, OTHERS[0]: only(1, since=1, until=40)}).state)


def test_what_differs_once_with_what_differs_twice_is_told_with_it_where_all_was_asked_for() -> None:
    made = training({DDP: only(1, since=30), OTHERS[0]: same, OTHERS[1]: same})
    sweep: dict[TensorInfo, Content] = {DDP: only(1, since=0), OTHERS[0]: only(1, since=0), OTHERS[1]: only(2, since=0)}
    made.state.tensors.apply(ledgers(sweep, range(3), [80]), 3)
    assert made.finds().names == (DDP.name,)
    made.state.tensors.apply([LedgerNews(rank, 100 + rank, answered=1, answer=80) for rank in range(3)], 3)
    assert made.finds().names == (DDP.name, OTHERS[0].name)


def test_an_incident_names_the_rows_and_reads_them() -> None:
    made = training({DDP: only(1, since=30), OTHERS[0]: same})
    made.state.tensors.entries[0].where = where((517, 518))
    found = made.finds()
    assert "in row 517 of 4096 (0.02 %) of Net.head.weight, since a step from 3 to 33" in found.summary
    (cause,) = found.causes
    assert "there alone, as after a flipped bit" in cause.text
    assert cause.key == "flipped"
    assert "row 517" in cause.evidence[-1].what
    assert cause.evidence[-1].step == 97


def test_a_tensor_that_differs_throughout_is_not_read_as_a_flipped_bit() -> None:
    made = training({DDP: only(1, since=30), OTHERS[0]: same})
    made.state.tensors.entries[0].where = where((0, 4096), unequal=64, unit=64)
    (cause,) = made.finds().causes
    assert cause.text.endswith("not as after a flipped bit")
    assert cause.key == "changed"


def test_what_differs_here_and_there_is_not_read_at_all() -> None:
    made = training({DDP: only(1, since=30), OTHERS[0]: same})
    before = made.finds().causes[0].text
    made.state.tensors.entries[0].where = where((0, 64), (640, 1280), (2000, 2400), (3000, 3900), unequal=30, unit=64)
    assert made.finds().causes[0].text == before


def test_of_several_tensors_the_first_are_said_with_their_rows() -> None:
    made = training(dict.fromkeys((DDP, *OTHERS), own))
    for one in made.state.tensors.entries:
        one.where = where((0, 4096), unequal=64, unit=64)
    found = made.finds()
    assert "row" not in found.summary
    assert sum("all 64 parts" in e.what for e in found.causes[0].evidence) == 3


def test_of_gradients_that_were_lost_it_is_said_where_in_the_weights_it_shows() -> None:
    given = replace(DDP, kind="gradient")
    made = training({DDP: only(1, since=30), given: only(1, since=30)})
    made.state.tensors.entries[0].where = where((512, 520))
    found = made.finds()
    assert found.kind == "divergence.gradient"
    assert "rows 512-519 of 4096 (0.2 %) of Net.head.weight differ" in found.causes[0].evidence[-1].what
