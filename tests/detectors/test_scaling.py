"""Scalers of replicas that skip other steps; and those that may."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job
from tests.detectors.tensors import own, same, training

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.scaling import skipped_alone
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.state.tensors import TensorInfo

WEIGHT = TensorInfo("Net.fc.weight")
CALM = [0.0] * 40


def scalers(*skipped: Sequence[float], content: object = same) -> Job:
    made = training({WEIGHT: content}, len(skipped))  # type: ignore[dict-item]
    for rank, values in enumerate(skipped):
        steps, step = [], 1
        for value in values:
            steps.append(step)
            step += value == 0
        signals(made.state, rank, "scaler/skipped", steps, values)
    return made


def find(made: Job) -> list[Finding]:
    return list(skipped_alone(scene_of(made.state)))


def at(*places: int) -> list[float]:
    return [float(n in places) for n in range(40)]


def test_a_step_that_one_of_three_skips_alone_is_told_with_it() -> None:
    (found,) = find(scalers(at(20), at(20), at(20, 25)))
    assert (found.kind, found.ranks, found.step) == ("divergence.optimizer", (2,), 25)
    assert "ranks 0,1: 1; rank 2: 2" in found.summary
    assert find(scalers(at(25), CALM))[0].ranks == (0, 1)


@pytest.mark.parametrize("made", [
    scalers(at(3, 20), at(3, 20)),
    scalers(at(36), CALM),  # what one rank has told may come later from the other
    scalers(at(25), CALM, content=own),  # each trains a model of its own
    scalers(at(25)),
])  # fmt: skip
def test_others_are_quiet(made: Job) -> None:
    assert find(made) == []


def test_of_shards_the_digests_say_nothing() -> None:
    made = training({replace(WEIGHT, local=True): same}, 2)
    for rank, values in enumerate((at(25), CALM)):
        signals(made.state, rank, "scaler/skipped", range(1, 41), values)
    assert find(made) == []
