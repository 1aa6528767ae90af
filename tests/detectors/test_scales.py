"""Gradient scalers with other factors on ranks that average their gradients; and those that come to them otherwise."""

from collections.abc import Sequence

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job
from tests.detectors.tensors import Content, only, own, same, training

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.scales import scales_apart
from diagd.daemon.state.tensors import TensorInfo

DDP = TensorInfo("Net.a.weight", shape=(4, 4), placement="ddp", peers=(0, 1, 2))
BEGAN: Content = lambda rank, step: own(rank, step) if step else 7  # noqa: E731
HIGH, LOW = [65536.0] * 90, [4096.0] * 90
CALM = [0.0] * 90


def scaled(
    *scales: Sequence[float], content: Content = BEGAN, skipped: Sequence[Sequence[float]] = (CALM, CALM, CALM)
) -> Job:
    made = training({DDP: content})
    for rank, (scale, left_out) in enumerate(zip(scales, skipped, strict=True)):
        signals(made.state, rank, "scaler/scale", range(1, len(scale) + 1), scale)
        signals(made.state, rank, "scaler/skipped", range(1, len(left_out) + 1), left_out)
    return made


def test_scalers_that_began_with_another_factor_are_the_cause_and_named() -> None:
    found = scaled(HIGH, HIGH, LOW).finds()
    assert (found.kind, found.ranks, found.severity) == ("divergence.gradient", (2,), Severity.CRITICAL)
    assert (found.names, found.causes[0].key, found.step) == (("grad_scaler", "scale"), "scales", 1)
    assert "(65536 on ranks 0,1, 4096 on rank 2), since step 1:" in found.summary
    assert found.summary.endswith("by up to 16 times")


def test_one_that_came_to_another_factor_later_is_told_with_the_steps_it_may_have_been() -> None:
    (late,) = scaled(HIGH, HIGH, HIGH[:30] + LOW[30:], content=only(2, since=33)).find()
    assert (late.causes[0].key, late.step) == ("scales", 31)


@pytest.mark.parametrize("made", [
    scaled(HIGH, HIGH, HIGH),  # something else is wrong
    scaled(HIGH, HIGH, LOW[:1] + HIGH[1:]),  # and one factor did not matter
    scaled(HIGH, HIGH, HIGH[:60] + LOW[60:]),  # it follows from weights that are apart long before
    scaled(HIGH, HIGH, LOW, skipped=(CALM, CALM, [1.0, *CALM[1:]])),  # of steps that one rank leaves out
])  # fmt: skip
def test_weights_that_part_by_something_else_are_not_put_down_to_them(made: Job) -> None:
    assert "scales" not in {cause.key for found in made.find() for cause in found.causes}


def test_ranks_that_train_the_same_all_the_same_or_tell_nothing_are_not_judged() -> None:
    assert not scaled(HIGH, HIGH, LOW, content=same).find()
    made = training({DDP: BEGAN})
    signals(made.state, 0, "scaler/scale", range(1, 91), HIGH)
    assert scales_apart(made.state, (0, 1, 2)) is None


def test_without_the_count_of_skipped_steps_on_one_rank_it_is_not_known_why_they_differ() -> None:
    made = training({DDP: BEGAN})
    for rank, scale in enumerate((HIGH, HIGH, LOW)):
        signals(made.state, rank, "scaler/scale", range(1, 91), scale)
    for rank in (0, 1):
        signals(made.state, rank, "scaler/skipped", range(1, 91), CALM)
    assert scales_apart(made.state, (0, 1, 2)) is None
    signals(made.state, 2, "scaler/skipped", range(1, 91), CALM)
    assert scales_apart(made.state, (0, 1, 2)) is not None
