"""Signs of life: those of a process that was there before anybody watched."""

from diagd.daemon.detectors.life import life_of
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Facts, Status


def watched(*times_s: float, cpu_each_s: float = 0.0) -> JobState:
    """A rank in a phase since second 100, seen at these times; it uses so much CPU between two of them."""
    state = JobState(hang_after_s=10.0)
    for number, now_s in enumerate(times_s):
        fact = Facts(
            rank=0, pid=7, status=Status.RUNNING, step=3, step_s=90.0, phase_s=100.0, heartbeat_s=now_s,
            main_cpu_s=50.0 + number * cpu_each_s,
        )  # fmt: skip
        state.apply([fact], [], now_s)
    return state


def test_a_watch_that_has_just_begun_claims_no_sign_that_it_has_not_seen() -> None:
    life = life_of(watched(200.0, 201.0), 0)
    assert (life.signs, life.busy, life.settled) == ((), False, False)
    assert life.idle_s == 1.0


def test_after_a_few_seconds_it_counts_from_when_the_rank_last_came_on() -> None:
    assert life_of(watched(200.0, 203.0, 206.0), 0).idle_s == 106.0


def test_what_moves_before_its_eyes_is_a_sign() -> None:
    life = life_of(watched(200.0, 203.0, 206.0, cpu_each_s=2.5), 0)
    assert life.busy
    assert life.signs == ("it computes",)
    assert life.idle_s == 0.0
