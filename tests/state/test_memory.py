"""What agents tell of memory becomes series beside those of the rank itself."""

from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Facts


def test_an_agents_numbers_stand_with_the_step_at_which_they_were_read() -> None:
    state = JobState("job")
    for step in (3, 9):
        state.apply([Facts(0, pid=7, step=step, extra={"memory/rss": 10.0 * step, "garbage_s": 1.0})], [], 100.0 + step)
    series = state.signals.series(0, "memory/rss")
    assert series is not None
    assert (series.steps.tolist(), series.values.tolist()) == ([3, 9], [30.0, 90.0])
    assert state.signals.names(0) == ("memory/rss",)


def test_another_process_under_the_number_begins_anew() -> None:
    state = JobState("job")
    state.apply([Facts(0, pid=7, step=3, extra={"memory/rss": 10.0})], [], 100.0)
    state.apply([Facts(0, pid=8, step=-1, extra={"memory/rss": 1.0})], [], 110.0)
    series = state.signals.series(0, "memory/rss")
    assert series is not None
    assert series.steps.tolist() == [0]
