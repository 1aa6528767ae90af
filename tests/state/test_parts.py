"""Digests of runs of rows, side by side: in which rows ranks differ."""

from collections.abc import Iterable

import pytest

from diagd.daemon.state.ledger import TensorLedger
from diagd.daemon.state.parts import PartBook, Span, Where, merged
from diagd.daemon.state.tensors import LedgerNews, TensorInfo

WEIGHT = TensorInfo("Net.head.weight", shape=(4096, 8), placement="ddp", peers=(0, 1, 2))
RANKS = (0, 1, 2)


def told(
    book: PartBook, step: int, spans: Iterable[Span], odd: Iterable[Span] = (), ranks: Iterable[int] = RANKS
) -> None:
    """Each of these ranks tells all; rank 1 something else of the odd ones."""
    for rank in ranks:
        for span in spans:
            book.take(0, step, span, rank, 99 if rank == 1 and span in odd else span[0])


def spans(first: int, stop: int, size: int) -> list[Span]:
    return [(start, start + size) for start in range(first, stop, size)]


def test_what_touches_is_one() -> None:
    assert merged([(5, 6), (0, 2), (2, 3), (4, 5)]) == ((0, 3), (4, 6))


def test_nothing_is_said_before_all_have_told_all() -> None:
    book = PartBook()
    told(book, 7, spans(0, 64, 1), odd=[(3, 4)], ranks=(0, 1))
    assert book.compare(0, 7, RANKS, None) is None
    told(book, 7, spans(0, 64, 1), ranks=(2,))
    found = book.compare(0, 7, RANKS, None)
    assert found == Where(7, ((3, 4),), 1, 64, 1, [[0, 2], [1]])
    assert book.compare(0, 7, RANKS, found) is found


def test_equal_parts_change_nothing() -> None:
    book, before = PartBook(), Where(3, ((0, 64),), 64, 64, 1, [[0, 2], [1]])
    told(book, 7, spans(0, 64, 1))
    assert book.compare(0, 7, RANKS, before) is before


def test_closer_looks_narrow_it_down_and_what_was_not_looked_at_stands() -> None:
    book = PartBook()
    told(book, 7, spans(0, 4096, 64), odd=[(512, 576), (1024, 1088)])
    first = book.compare(0, 7, RANKS, None)
    assert first is not None
    assert (first.spans, first.unit, first.rows) == (((512, 576), (1024, 1088)), 64, 128)
    told(book, 9, spans(512, 576, 1), odd=[(517, 518), (518, 519)])
    second = book.compare(0, 9, RANKS, first)
    assert second is not None
    assert (second.spans, second.unit, second.step) == (((517, 519), (1024, 1088)), 64, 9)
    told(book, 11, spans(1024, 1088, 1), odd=[(1030, 1031)])
    third = book.compare(0, 11, RANKS, second)
    assert third is not None
    assert (third.spans, third.rows) == (((517, 519), (1030, 1031)), 3)


def test_two_passes_are_kept() -> None:
    book = PartBook()
    told(book, 1, [(0, 8)], ranks=(0, 1))
    told(book, 2, [(0, 8)], ranks=(0, 1))
    told(book, 3, [(0, 8)], odd=[(0, 8)])
    told(book, 1, [(0, 8)], odd=[(0, 8)], ranks=(2,))
    assert book.compare(0, 1, RANKS, None) is None
    assert book.compare(0, 3, RANKS, None) is not None


def ledger_news(rank: int, digests: list[int]) -> LedgerNews:
    count = len(digests)
    size = 4096 // count
    return LedgerNews(
        rank, 100 + rank, 0, (WEIGHT,),
        part_rows=[0] * count, part_steps=[40] * count, part_firsts=[size * n for n in range(count)],
        part_stops=[size * n + size for n in range(count)], part_digests=digests, answered=1, answer=40,
    )  # fmt: skip


@pytest.fixture
def book() -> TensorLedger:
    book = TensorLedger()
    book.apply([ledger_news(rank, [1, 2 + (rank == 1), 3, 4]) for rank in RANKS], 3)
    return book


def test_what_ranks_tell_of_parts_is_compared_and_their_answers_are_kept(book: TensorLedger) -> None:
    (entry,) = book.entries
    assert entry.where == Where(40, ((1024, 2048),), 1024, 4, 1, [[0, 2], [1]])
    assert (book.asked, book.answers) == ({40}, dict.fromkeys(RANKS, (1, 40)))
    assert (book.ranks, book.pid(1), book.pid(7)) == (RANKS, 101, 0)


def test_of_a_rank_that_came_too_late_no_step_is_known(book: TensorLedger) -> None:
    book.apply([LedgerNews(2, 102, answered=2, answer=-1)], 3)
    assert (book.asked, book.answers[2]) == ({40}, (2, -1))


def test_another_process_under_the_number_begins_anew(book: TensorLedger) -> None:
    book.apply([LedgerNews(1, 7, 0, (WEIGHT,))], 3)
    assert book.entries[0].where is None
    assert 1 not in book.answers


def test_a_tensor_is_found_in_a_rank_s_ledger_wherever_it_stands_there(book: TensorLedger) -> None:
    other = TensorInfo("Net.other", shape=(2,))
    book.apply([LedgerNews(0, 100, 1, (other,)), LedgerNews(1, 101, 5, (other,))], 3)
    assert [book.row(rank, 1, near) for rank, near in ((0, None), (0, 1), (1, 1), (2, 1), (7, None))] == [
        1, 1, 5, None, None,
    ]  # fmt: skip
