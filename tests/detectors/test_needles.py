"""Losses that leap for single steps: what comes back is in the data; what came once, or not that far, is not told."""

import numpy as np
import pytest
from tests.detectors.learning import Floats, Learning, around, falling

from diagd.daemon.detectors.training import needles
from diagd.daemon.detectors.training.curves import Curve


def leaping(places: tuple[int, ...], height: float) -> Floats:
    loss = falling(200, noise=0.1)
    loss[list(places)] = height
    return loss


def test_the_rank_whose_loss_leaps_again_and_again_is_told_with_the_steps() -> None:
    calm = falling(200, noise=0.1)
    run = Learning({"loss": calm}, world=3).rank(1, {"loss": leaping((80, 105, 130), 4000.0)})
    (found,) = run.find()
    assert (found.kind, found.severity, found.ranks, found.step) == ("training.loss_spike", "warning", (1,), 81)
    assert "3 times since step 81, and that of no other rank does" in found.summary
    assert found.causes[0].key == "data"


def test_of_all_ranks_nobody_is_said_to_be_alone() -> None:
    (found,) = Learning({"loss": leaping((80, 105), 4000.0)}, world=2).find()
    assert found.ranks == (0, 1)
    assert "no other rank" not in found.summary


@pytest.mark.parametrize(("places", "height"), [((80,), 4000.0), ((80, 105, 130), 12.0)])
def test_a_single_leap_and_a_heavy_tail_are_not_told(places: tuple[int, ...], height: float) -> None:
    assert Learning({"loss": leaping(places, height)}, world=2).kinds() == []


def test_a_loss_near_0_that_is_now_and_then_what_it_was_at_first_is_not_told() -> None:
    learned = np.concatenate([np.linspace(2.0, 1e-4, 40), around(1e-4, 1e-5, 160)])
    learned[[120, 150, 170]] = 1.9  # another task, soon known again
    assert Learning({"loss": learned}).kinds() == []


def test_a_loss_around_0_leaps_no_more_than_it_did() -> None:
    begins_below = np.concatenate([np.zeros(10), np.full(6, -0.5), around(0.0, 0.1, 184)])
    assert needles._places(Curve(np.arange(1, 201), begins_below)) == []


def test_a_loss_that_stays_where_it_has_leapt_to_is_no_needle() -> None:
    steps, calm = np.arange(1, 201), np.full(200, 0.5)
    for places, times in (((80, 105), 2), (range(80, 200), 0)):
        loss = calm.copy()
        loss[list(places)] = 4000.0
        assert len(needles._places(Curve(steps, loss))) == times


def test_where_rewards_make_the_loss_it_may_leap() -> None:
    rewards = {"logged/reward": around(0.5, 0.05, 200), "logged/entropy": around(2.0, 0.01, 200)}
    assert Learning({"loss": leaping((80, 105, 130), 4000.0), **rewards}).kinds() == []
