"""What a status says beyond what was told: how late ranks come to operations."""

from tests.aggregator.fakes import FakeJudge
from tests.cli.statuses import check_status
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
