"""How often a job is judged that goes on, and one that does not."""

import numpy as np
import pytest

from diagd.daemon.aggregator.calm import EVERY_S, Calm
from diagd.daemon.state.columns import empty_columns
from diagd.daemon.state.job import JobState


def job() -> JobState:
    state = JobState(now_s=100.0, columns=empty_columns(3))
    state.columns.known[:2] = True
    state.columns.step[:], state.columns.operations[:] = 5, 50
    return state


def later(state: JobState, seconds: float, steps: tuple[int, int], operations: tuple[int, int]) -> JobState:
    state.now_s += seconds
    state.columns.step[:2] += np.array(steps)
    state.columns.operations[:2] += np.array(operations)
    return state


def test_a_job_is_judged_at_first() -> None:
    assert not Calm().lasts(job())


@pytest.mark.parametrize(
    ("seconds", "steps", "operations", "calm"),
    [
        (0.5, (1, 1), (0, 0), True),
        (0.5, (0, 1), (1, 0), True),
        (0.5, (0, 1), (0, 1), False),
        (0.5, (0, 0), (0, 0), False),
        (EVERY_S, (1, 1), (1, 1), False),
    ],
)
def test_it_is_calm_while_every_rank_comes_further(
    seconds: float, steps: tuple[int, int], operations: tuple[int, int], calm: bool
) -> None:
    state, seen = job(), Calm()
    seen.judged(state)
    assert seen.lasts(later(state, seconds, steps, operations)) is calm


@pytest.mark.parametrize("what", ["ended_s", "stopping_s"])
def test_the_end_of_a_job_is_judged(what: str) -> None:
    state, seen = job(), Calm()
    seen.judged(state)
    later(state, 0.5, (1, 1), (1, 1))
    assert seen.lasts(state)
    setattr(state, what, state.now_s)
    assert not seen.lasts(state)


def test_more_ranks_are_judged() -> None:
    state, seen = job(), Calm()
    seen.judged(state)
    state.columns = empty_columns(4)
    state.columns.known[:] = True
    assert not seen.lasts(later(state, 0.5, (9, 9), (9, 9)))
