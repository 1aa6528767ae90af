"""Closer looks cost the ranks something: they are asked for on suspicion only."""

from dataclasses import replace

import pytest
from tests.detectors.states import job
from tests.detectors.training import Training

from diagd.daemon.detectors.attention import attention


def test_a_job_that_steps_is_left_alone() -> None:
    assert not attention(job(3).train(0, 1, 2).passes(10).state)


def test_a_job_that_is_looked_at_less_often_does_not_stand_still_between_two_looks() -> None:
    steady = job(3).train(0, 1, 2).passes(10)
    steady.state.tick(steady.state.now_s + 3.0)
    assert not attention(steady.state)


def test_ranks_that_stand_still_are_looked_at_all_together() -> None:
    asked = attention(job(3).waits(0, seq=5).waits(1, seq=5).outside(2).passes(2).state)
    assert set(asked.stacks) == {0, 1, 2}
    assert asked.history == (0, 1, 2)


def test_who_has_not_come_to_init_is_looked_at_once_the_others_wait_there() -> None:
    start = job(3, warm=False).initialises(0).initialises(1).outside(2, "download")
    start.ranks[2].detail = start.ranks[2].detail.with_(is_rank=False, groups=())
    assert attention(start.passes(8).state).stacks == (0, 1, 2)


def test_a_first_step_is_given_longer() -> None:
    start = job(2, warm=False).outside(0).outside(1).passes(4)
    assert not attention(start.state)
    assert attention(start.passes(1.5).state)


def test_a_dead_ranks_history_is_wanted_while_others_live() -> None:
    assert 1 in attention(job(2).train(0).dies(1, signal="SIGKILL").passes(1).state).history


def test_a_job_that_has_ended_is_left_alone() -> None:
    assert not attention(job(2).dies(0, code=0).dies(1, code=0).passes(5).state)


def test_the_recorder_is_read_once_for_a_standstill() -> None:
    still = job(2).entered(0, 5).entered(1, 5).outside(0).outside(1).passes(2)
    assert attention(still.state).recorder == (0, 1)
    still.recorded(0, "ALLREDUCE", 5).recorded(1, "ALLREDUCE", 5).passes(0.5)
    assert attention(still.state).recorder == ()


@pytest.mark.parametrize(("issued", "read"), [(0, False), (10_000, True)])
def test_the_recorder_of_a_running_job_is_read_where_operations_are_issued_from_cpp(issued: int, read: bool) -> None:
    run = Training(2)
    run.state.started_s = run.now_s
    run.groups = tuple(replace(group, enqueued=issued) for group in run.groups)
    run.goes(40)
    run.closely = False
    run.goes(70)
    asked = attention(run.state)
    assert asked.history == (0, 1)
    assert asked.recorder == ((0, 1) if read else ())


def test_the_longer_a_job_runs_in_order_the_more_seldom_its_recorder_is_read() -> None:
    run = Training(2)
    run.state.started_s = run.now_s
    run.groups = tuple(replace(group, enqueued=100_000) for group in run.groups)
    run.goes(400)
    run.closely = False
    assert attention(run.goes(100).state).recorder == ()
    assert attention(run.goes(500).state).recorder == (0, 1)


def test_few_ranks_of_many_are_looked_at_in_one_go() -> None:
    crowd = job(100)
    assert 0 < len(attention(crowd.passes(3).state).stacks) <= 64
