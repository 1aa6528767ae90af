"""Where a rank is said to be."""

from tests.detectors.states import at, job

from diagd.daemon.detectors import places
from diagd.daemon.detectors.position import Wait
from diagd.daemon.state.model import Operation


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
