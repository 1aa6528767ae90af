"""Replicas that no longer step their optimizer and go on through the passes."""

from dataclasses import replace

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job
from tests.detectors.tensors import same
from tests.detectors.test_apart import DDP, training

from diagd.daemon.detectors.apart import apart
from diagd.daemon.incidents.catalog import entry
from diagd.daemon.state.model import Group


def job(
    steps: tuple[int, ...], met: tuple[int, ...], wrapper: str = "ddp", per_step: float = 2.0, backward_s: float = 0.1
) -> Job:
    """So many steps and collectives of each rank; by the end of a step the first rank had met `per_step` times it.

    Between two looks each rank has spent `backward_s` in backward passes.
    """
    made = training({DDP: same}, len(steps))
    world = len(steps)
    signals(made.state, 0, "step/collectives", range(1, steps[0] + 1), [per_step * s for s in range(1, steps[0] + 1)])
    for rank, placed in made.ranks.items():
        made.state.signals.put_fact(rank, "data/replicas", 1, f"{wrapper} 0:{world - 1}:1")
        placed.facts.step = steps[rank]
        placed.detail = replace(placed.detail, groups=(Group("0", tuple(range(world)), enqueued=met[rank]),))
        placed.details = True
    for look in range(3):
        for placed in made.ranks.values():
            placed.facts.extra["phase_s|backward"] = look * backward_s
        made.report()
    return made


def told(made: Job) -> list[tuple[str, tuple[int, ...], int | None, str]]:
    found = [one.finding for one in apart(made.state)]
    return [(one.kind, one.ranks, one.step, one.causes[0].key) for one in found]


def test_a_rank_that_meets_the_others_and_steps_no_more_is_named_with_its_last_step() -> None:
    assert told(job((90, 29, 90), (180, 180, 180))) == [("divergence.step", (1,), 30, "unstepped")]
    assert "backward()" in entry("divergence.step").fix("unstepped").as_json()["action"]


@pytest.mark.parametrize(
    ("steps", "met", "wrapper", "per_step"),
    [
        ((90, 75, 90), (180, 180, 180), "ddp", 2.0),  # not so far
        ((90, 29, 90), (180, 70, 180), "ddp", 2.0),  # it is behind in all
        ((90, 0, 90), (180, 180, 180), "ddp", 2.0),  # it never stepped: one that is given the weights
        ((90, 29, 40), (180, 180, 180), "ddp", 2.0),  # each by another number
        ((90, 29, 90), (18, 18, 18), "ddp", 0.2),  # they meet now and then
        ((90, 29, 90), (180, 180, 180), "", 2.0),  # no wrapper says that they belong together
    ],
)
def test_what_is_no_rank_that_stopped_is_not_told(
    steps: tuple[int, ...], met: tuple[int, ...], wrapper: str, per_step: float
) -> None:
    assert told(job(steps, met, wrapper, per_step)) == []


def test_a_rank_without_passes_of_its_own_answers_those_that_have_batches_left() -> None:
    assert told(job((90, 29, 90), (180, 180, 180), backward_s=0.0)) == []


def test_steps_that_a_scaler_has_skipped_are_told_by_its_own_rule() -> None:
    made = job((90, 29, 90), (180, 180, 180))
    signals(made.state, 1, "scaler/skipped", range(30, 91), [1.0] * 61)
    assert told(made) == []
