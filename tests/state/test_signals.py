"""The ranks' scalars in the state: bounded, in order, and of one process at a time."""

from dataclasses import replace

import numpy as np
import pytest

from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.signals import BEGIN_OF, KEPT, LEAST_KEPT, MEMORY, Series, SignalBook

NEWS = SignalNews(
    1, 10, 0, ("loss", "lr/0", "loss/dtype", "float32"), [0, 1, 0], [1, 1, 2], [3.0, 0.1, 2.0], ((2, 1, 3),)
)


def test_series_are_by_rank_and_name() -> None:
    book = SignalBook()
    book.apply([NEWS, replace(NEWS, rank=4, names=[1], steps=[7], values=[0.2], facts=())])
    loss = book.series(1, "loss")
    assert loss is not None
    assert (loss.steps.tolist(), loss.values.tolist(), loss.first_step) == ([1, 2], [3.0, 2.0], 1)
    assert (book.names(1), book.names(4), book.names(9)) == (("loss", "lr/0"), ("lr/0",), ())
    assert (book.ranks("lr/0"), book.ranks("loss"), book.ranks("other")) == ((1, 4), (1,), ())
    assert (book.fact(1, "loss/dtype"), book.fact(4, "loss/dtype")) == ((1, "float32"), None)
    assert book.series(4, "loss") is None


def test_what_comes_later_is_added_by_the_numbers_told_before() -> None:
    book = SignalBook()
    book.apply([NEWS, SignalNews(1, 10, 4, ("grad_norm",), [4, 0], [3, 3], [9.0, 1.0])])
    loss, norm = book.series(1, "loss"), book.series(1, "grad_norm")
    assert loss is not None
    assert norm is not None
    assert (loss.values.tolist(), norm.values.tolist()) == ([3.0, 2.0, 1.0], [9.0])


def test_another_process_under_the_rank_begins_anew() -> None:
    book = SignalBook()
    book.apply([NEWS, replace(NEWS, pid=11, names=[0], steps=[1], values=[8.0], facts=())])
    loss = book.series(1, "loss")
    assert loss is not None
    assert loss.values.tolist() == [8.0]
    assert book.fact(1, "loss/dtype") is None


def test_numbers_that_no_string_was_told_for_are_passed_over() -> None:
    book = SignalBook()
    book.apply([SignalNews(0, 1, 5, ("loss",), [5], [1], [1.0], ((5, 1, 9),))])
    assert book.names(0) == ()


def test_a_long_series_keeps_what_is_recent_whole_and_what_is_old_thinly() -> None:
    book = SignalBook()
    for step in range(1, 40_001, 100):
        book.put(0, "loss", list(range(step, step + 100)), [float(s) for s in range(step, step + 100)])
    series = book.series(0, "loss")
    assert series is not None
    assert len(series) <= KEPT
    assert series.taken == 40_000
    assert series.first_step == series.steps[0] == 1
    assert series.steps[-1] == 40_000
    assert series.steps[: KEPT // BEGIN_OF].tolist() == list(range(1, KEPT // BEGIN_OF + 1))
    gaps = np.diff(series.steps)
    assert gaps.min() >= 1
    assert (gaps[-KEPT // 4 :] == 1).all()
    assert (np.diff(gaps) <= 0).mean() > 0.99
    assert (series.values == series.steps).all()


def test_the_step_from_which_on_a_series_is_not_finite_outlasts_all_thinning() -> None:
    for at in (777, 1001, 30_003):
        series = Series(256)
        for begin in range(0, 60_000, 30):
            steps = range(begin, begin + 30)
            series.add(steps, [float("nan") if step >= at else 1.0 for step in steps])
        assert len(series) <= 256
        assert int(series.steps[np.isnan(series.values)][0]) == at


def test_a_series_that_is_not_finite_at_every_second_step_is_thinned_like_any_other() -> None:
    series = Series(256)
    series.add(range(10_000), [float("nan") if step % 2 else 1.0 for step in range(10_000)])
    assert len(series) <= 256


def test_more_than_a_series_holds_at_once_is_taken_too() -> None:
    book = SignalBook()
    book.put(0, "grad_norm/fc.weight", list(range(5000)), [1.0] * 5000)
    series = book.series(0, "grad_norm/fc.weight")
    assert series is not None
    assert len(series) <= 512
    assert series.steps[-1] == 4999


def test_of_many_ranks_less_is_kept_of_each_series_and_the_newest_is_whole() -> None:
    book, ranks = SignalBook(), 3000
    steps = list(range(1, 5001))
    book.put(0, "loss", steps, [float(s) for s in steps])
    assert len(book.series(0, "loss") or ()) > 2048
    for rank in range(ranks):
        for name in ("loss", "lr/0", "grad_norm", "memory/rss"):
            book.put(rank, name, [6000], [1.0])
    kept = KEPT
    while kept > LEAST_KEPT and 4 * ranks * kept * 16 > MEMORY:
        kept //= 2
    assert kept < KEPT
    for rank in (0, ranks - 1):
        book.put(rank, "loss", range(6001, 12001), [2.0] * 6000)
        series = book.series(rank, "loss")
        assert series is not None
        assert kept // 2 <= len(series) <= kept
        assert series.steps[-1] == 12000
        assert list(series.steps[-50:]) == list(range(11951, 12001))


def test_series_of_parameters_are_bounded_over_all_ranks_and_others_are_not_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("diagd.daemon.state.signals.MAX_OF_PARAMETERS", 3)
    book = SignalBook()
    for rank in range(2):
        for name in ("grad_norm/a", "grad_norm/b", "loss"):
            book.put(rank, name, [1], [1.0])
    assert [book.names(rank) for rank in range(2)] == [("grad_norm/a", "grad_norm/b", "loss"), ("grad_norm/a", "loss")]
    book.begin(0, 10)
    book.begin(0, 11)  # another process: its series are gone, and leave room
    book.put(1, "grad_norm/b", [2], [1.0])
    assert "grad_norm/b" in book.names(1)
