"""Replicas that train in different modes."""

from collections.abc import Sequence

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job, job

from diagd.daemon.detectors.finding import Severity

TRAINS, EVALUATES = 1.0, 0.0
STEPS = [1, 9, 17, 25, 33, 41]


def modes(*by_rank: Sequence[float], steps: Sequence[int] = STEPS) -> Job:
    world = len(by_rank)
    made = job(world).train(*range(world))
    for rank, shares in enumerate(by_rank):
        made.state.signals.put_fact(rank, "data/replicas", 1, f"ddp 0:{world - 1}:1")
        signals(made.state, rank, "mode/statistics", steps[: len(shares)], shares)
    return made.passes(1)


def test_a_rank_that_is_left_in_evaluation_mode_is_named_with_the_step() -> None:
    found = modes([TRAINS] * 6, [TRAINS] * 2 + [EVALUATES] * 4, [TRAINS] * 6).finds()
    assert (found.kind, found.ranks, found.step) == ("divergence.buffer", (1,), 17)
    assert (found.severity, found.causes[0].key) == (Severity.WARNING, "mode")
    assert "since a step from 10 to 17" in found.summary
    assert "evaluation mode" in found.summary


def test_who_leaves_the_mode_of_all_is_odd_also_of_two() -> None:
    assert modes([EVALUATES] * 6, [EVALUATES] * 2 + [TRAINS] * 4).finds().ranks == (1,)
    assert modes([TRAINS] * 6, [EVALUATES] * 6).finds().ranks == (1,)


@pytest.mark.parametrize(
    "by_rank",
    [
        ([TRAINS] * 6, [TRAINS] * 6),
        ([EVALUATES] * 6, [EVALUATES] * 6),  # frozen everywhere
        ([TRAINS] * 6, [TRAINS] * 2 + [EVALUATES] + [TRAINS] * 3),
        ([TRAINS] * 6, [TRAINS] * 4 + [EVALUATES] * 2),  # it may be evaluating
    ],
)
def test_one_mode_on_all_ranks_or_an_evaluation_is_nothing(by_rank: tuple[Sequence[float], ...]) -> None:
    assert modes(*by_rank).find() == ()


def test_ranks_that_are_no_replicas_may_be_in_any_mode() -> None:
    made = modes([TRAINS] * 6, [EVALUATES] * 6)
    made.state.signals.put_fact(0, "data/replicas", 1, "ddp 0,2")
    made.state.signals.put_fact(1, "data/replicas", 1, "ddp 1,3")
    assert made.find() == ()
