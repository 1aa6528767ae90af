"""Where a rank is said to be."""

import pytest
from tests.detectors.states import at, job

from diagd.daemon.detectors import places
from diagd.daemon.detectors.position import Wait
from diagd.daemon.state.model import Detail, Ending, Operation


def names(entered_s: float, taken_s: float) -> list[str]:
    """Of a rank whose stack was taken then, and that entered its operation then."""
    made = job(2)
    made.now_s = taken_s
    detail = made.stack(1, at("reduce", line=17), at("main", line=46)).ranks[1].detail
    op = Operation("ALLGATHER", "0", 7, site=at("collect", line=30), entered_s=entered_s)
    return [place.frame.function for place in places.at_wait(detail, Wait(1, op, entered_s, (0, 1)))]


def test_a_stack_that_was_taken_in_the_operation_says_who_called_it() -> None:
    assert names(entered_s=1000.0, taken_s=1003.0) == ["collect", "reduce", "main"]
    assert names(entered_s=1000.0, taken_s=999.8) == ["collect", "reduce", "main"]  # clocks differ a little


def test_an_older_one_says_who_called_another() -> None:
    assert names(entered_s=1000.0, taken_s=990.0) == ["collect"]


def test_of_a_comprehension_the_function_that_it_is_in_is_named() -> None:
    raised = Ending("exception", "ValueError", "1,5", 1, (
        at("<listcomp>", line=16), at("parse", line=16), at("<listcomp>", line=36), at("fit", line=40),
    ))  # fmt: skip
    detail = job(2).dies(1, code=1, ending=raised).ranks[1].detail
    assert [(one.frame.function, one.frame.line) for one in places.at_end(detail, places.NO_STEP)] == [
        ("parse", 16), ("<listcomp>", 36), ("fit", 40),
    ]  # fmt: skip


@pytest.mark.parametrize(("since_s", "shown"), [(0.0, ["__init__"]), (500.0, [])])
def test_without_a_stack_the_last_call_is_where_a_rank_is_but_not_one_from_before_its_last_step(
    since_s: float, shown: list[str]
) -> None:
    begun = Operation("ALLREDUCE", "0", 1, entered_s=100.0, returned_s=101.0, site=at("__init__", line=18))
    found = places.outside(Detail(0, history=(begun,)), since_s)
    assert [place.frame.function for place in found] == shown
