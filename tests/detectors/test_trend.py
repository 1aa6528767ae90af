"""Steady, in bursts, or growing: what is said of how a rank is slow."""

import random
import re

import pytest
from tests.detectors.training import Own, Training, usual, with_more

from diagd.daemon.detectors.trend import Point, mann_kendall_z, theil_sen


def drifting(training: Training, rank: int, by_s: float) -> Own:
    began = training.step

    def own(who: int, step: int) -> dict[str, float]:
        return with_more(rank, "forward", (step - began) * by_s)(who, step)

    return own


def noisy(own: Own, spread_s: float, seed: int = 3) -> Own:
    chance = random.Random(seed)

    def made(who: int, step: int) -> dict[str, float]:
        work = own(who, step)
        return {**work, "forward": work["forward"] + chance.random() * spread_s}

    return made


def test_what_grows_from_step_to_step_is_said_to() -> None:
    training = Training(2).goes(10)
    found = training.goes(40, drifting(training, 1, 0.0002)).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (1,))
    assert "at every step and ever more so" in found.summary
    before, now = map(int, re.findall(r"(\d+) ms (?:a step \d+ s ago|now)", found.summary))
    assert before < now


def test_growth_shows_through_noise() -> None:
    training = Training(3).goes(10)
    found = training.goes(60, noisy(drifting(training, 1, 0.0002), 0.02)).finds()
    assert "ever more so" in found.summary


@pytest.mark.parametrize("seed", range(6))
def test_a_rank_that_is_steadily_slow_is_not_said_to_grow(seed: int) -> None:
    training = Training(2).goes(30)
    found = training.goes(40, noisy(with_more(0, "forward", 0.05), 0.02, seed)).finds()
    assert "at every step:" in found.summary


def test_slow_work_that_no_phase_shows_is_not_said_to_grow() -> None:
    found = Training(2).goes(6).goes(20, with_more(0, "backward", 0.05, cpu=0.088)).finds()
    assert "at every step:" in found.summary


def test_bursts_stay_bursts() -> None:
    found = Training(4).goes(8).goes(25, with_more(3, "forward", 0.6, every=30)).finds()
    assert "in bursts" in found.summary
    assert "ever more" not in found.summary


def test_the_median_slope_is_not_moved_by_a_quarter_of_wild_points() -> None:
    points = [Point(t, 0.5 * t) for t in range(40)]
    wild = [Point(p.at_s, 900.0) if place % 4 == 1 else p for place, p in enumerate(points)]
    assert theil_sen(points) == 0.5
    assert theil_sen(wild) == pytest.approx(0.5, rel=0.3)


def test_the_test_for_a_trend_counts_pairs() -> None:
    rising = [Point(t, t) for t in range(10)]
    assert mann_kendall_z(rising) == pytest.approx(44 / (10 * 9 * 25 / 18) ** 0.5)  # table values of Kendall's S
    assert mann_kendall_z([Point(t, -t) for t in range(10)]) == -mann_kendall_z(rising)
    assert mann_kendall_z([Point(t, 1.0) for t in range(10)]) == 0.0


def test_what_has_grown_before_and_is_usual_again_is_not_spoken_of() -> None:
    training = Training(2).goes(10)
    assert training.goes(30, drifting(training, 1, 0.0002)).goes(10, usual).find() == ()
