"""What a status says beyond what was told: how late ranks come to operations, and in which they wait."""

from tests.aggregator.fakes import FakeJudge
from tests.cli.statuses import check_status
from tests.detectors.states import job
from tests.detectors.training import Training, with_more

from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.status import status


def late_seconds(training: Training) -> list[float | None]:
    loop = JobLoop("job", FakeJudge().make())
    loop.state = training.state
    found = status(loop)
    check_status(found)
    return [rank["late_seconds"] for rank in found["ranks"]]


def test_a_rank_is_as_late_as_it_comes_after_the_first() -> None:
    training = Training(3).goes(8).goes(12, with_more(1, "forward", 0.05))
    training.find()
    first, slow, third = late_seconds(training)
    assert first == third == 0.0
    assert slow is not None
    assert 0.045 < slow < 0.055


def test_where_operations_are_not_known_nothing_is_said_of_it() -> None:
    training = Training(2)
    training.find()
    assert late_seconds(training) == [None, None]


def test_a_wait_in_what_cpp_has_issued_is_told_where_the_flight_recorder_was_asked() -> None:
    made = job(2).waits_in_backward(0, seq=31, since_s=4.0).outside(1, "load")
    made.report()
    loop = JobLoop("job", FakeJudge().make())
    loop.state = made.state
    waiting, other = status(loop)["ranks"]
    assert (waiting["wait"]["op"], waiting["wait"]["group"]) == ("ALLREDUCE", "0")
    assert waiting["wait"]["seconds"] >= 4.0
    assert other["wait"] is None
