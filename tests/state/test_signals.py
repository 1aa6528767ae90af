"""The ranks' scalars in the state: bounded, in order, and of one process at a time."""

from dataclasses import replace

import numpy as np

from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.signals import KEPT, SignalBook

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
    gaps = np.diff(series.steps)
    assert gaps.min() >= 1
    assert (gaps[-KEPT // 4 :] == 1).all()
    assert (np.diff(gaps) <= 0).mean() > 0.99
    assert (series.values == series.steps).all()


def test_more_than_a_series_holds_at_once_is_taken_too() -> None:
    book = SignalBook()
    book.put(0, "grad_norm/fc.weight", list(range(5000)), [1.0] * 5000)
    series = book.series(0, "grad_norm/fc.weight")
    assert series is not None
    assert len(series) <= 512
    assert series.steps[-1] == 4999
