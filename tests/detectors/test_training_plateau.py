"""Losses that stand still, and those that only seem to."""

import numpy as np
import pytest
from tests.detectors.learning import Floats, Learning, Scalars, around, falling, rng
from tests.detectors.scalars import signals

from diagd.daemon.detectors.training.curves import Curve
from diagd.daemon.detectors.training.falling import CLEAR, fall_of
from diagd.daemon.detectors.training.plateau import LEAST, is_flat


def test_a_loss_that_never_fell_is_worth_knowing_and_then_a_warning() -> None:
    assert Learning({"loss": around(3.7, 0.5, 80)}).kinds() == []
    assert Learning({"loss": around(3.7, 0.5, 130)}).kinds() == [("loss_plateau", "info")]
    assert Learning({"loss": around(3.7, 0.5, 1900)}).kinds() == [("loss_plateau", "info")]
    assert Learning({"loss": around(3.7, 0.5, 2100)}).kinds() == [("loss_plateau", "warning")]


def test_shapes_that_are_broadcast_in_the_loss_say_why_and_sooner() -> None:
    run = Learning({"loss": around(3.7, 0.5, 60)})
    run.job.state.signals.put_fact(0, "loss/broadcast", 1, "64,1 64,64")
    (found,) = run.find()
    assert (found.kind, found.severity, found.causes[0].key) == ("training.loss_plateau", "warning", "broadcast")
    assert "[64, 1]" in found.summary
    fits = Learning({"loss": falling(60)})
    fits.job.state.signals.put_fact(0, "loss/broadcast", 1, "64,1 64,64")
    assert fits.kinds() == []


def test_loaded_weights_make_a_flat_loss_no_warning() -> None:
    run = Learning({"loss": around(0.4, 0.05, 600)})
    run.job.state.signals.put_fact(0, "checkpoint/loaded", 1, "Sequential")
    assert run.kinds() == [("loss_plateau", "info")]


@pytest.mark.parametrize(("entropy", "kinds"), [(4.16, []), (0.5, [("loss_plateau", "info")])])
def test_a_flat_loss_far_below_what_the_targets_give_was_learned_before(
    entropy: float, kinds: list[tuple[str, str]]
) -> None:
    run = Learning({"loss": around(0.4, 0.05, 200), "loss/target_entropy": np.full(3, entropy)})
    assert run.kinds() == kinds


def test_a_bias_learned_is_nothing_learned() -> None:
    loss = np.concatenate([np.linspace(2.5, 2.303, 10), around(2.303, 0.02, 140)])
    (found,) = Learning({"loss": loss}).find()
    assert (found.kind, found.causes[0].key) == ("training.loss_plateau", "nothing learned")


@pytest.mark.parametrize(("entropy", "said"), [(3.62, [("loss_plateau", "info")]), (3.9, []), (3.2, [])])
def test_a_loss_that_sinks_to_what_the_classes_frequencies_give(entropy: float, said: list[tuple[str, str]]) -> None:
    loss = 3.62 + 0.38 * np.exp(-np.arange(320) / 40) + around(0, 0.02, 320)
    run = Learning({"loss": loss, "loss/target_entropy": np.full(3, entropy)})
    assert run.kinds() == said


def test_a_loss_that_sinks_to_the_variance_of_its_targets_has_learned_their_mean() -> None:
    loss = 0.8 + 5.0 * np.exp(-np.arange(320) / 30) + around(0, 0.02, 320)
    (found,) = Learning({"loss": loss, "loss/target_variance": np.full(3, 0.8)}).find()
    assert (found.kind, found.severity) == ("training.loss_plateau", "info")
    assert "the variance of its targets is 0.8" in found.summary
    assert "than the targets' mean" in found.summary


@pytest.mark.parametrize(("falls_by", "said"), [(0.01, [("loss_plateau", "info")]), (0.08, [])])
def test_a_loss_that_settles_a_little_above_that_level_has_learned_no_more(
    falls_by: float, said: list[tuple[str, str]]
) -> None:
    """A model that adds noise of its own, as by dropout; but not while it still falls."""
    fall = np.concatenate([np.linspace(6.0, 0.86 + falls_by, 40), np.linspace(0.86 + falls_by, 0.86, 280)])
    run = Learning({"loss": fall + around(0, 0.02, 320), "loss/target_variance": np.full(3, 0.8)})
    assert run.kinds() == said


def test_a_loss_that_goes_below_the_frequencies_has_learned() -> None:
    loss = 3.3 + 0.7 * np.exp(-np.arange(320) / 100)
    assert Learning({"loss": loss, "loss/target_entropy": np.full(3, 3.4)}).kinds() == []


@pytest.mark.parametrize(("level", "count", "said"), [
    (3.9, 100, [("loss_divergence", "warning")]),  # all that was learned is lost
    (3.9, 50, []),  # not yet for long
    (2.9, 100, []),  # in part
])  # fmt: skip
def test_what_was_learned_and_is_lost_for_good_has_diverged(
    level: float, count: int, said: list[tuple[str, str]]
) -> None:
    learns = np.concatenate([np.linspace(3.95, 1.4, 150), around(1.4, 0.05, 40)])
    rises = np.concatenate([learns, np.linspace(1.4, level, 30), around(level, 0.03, count)])
    told = Learning({"loss": rises, "loss/target_entropy": np.full(3, 3.83)}, world=2).kinds()
    assert [one for one in told if one[0] != "loss_spike"] == said


def test_of_a_loss_that_is_noise_for_the_most_part_nothing_can_be_said() -> None:
    assert Learning({"loss": around(0.9, 0.7, 130)}).kinds() == []


def test_a_slow_fall_within_large_noise_is_a_fall() -> None:
    assert Learning({"loss": np.linspace(3.7, 3.2, 400) + around(0, 0.4, 400)}).kinds() == []


def looks_flat(loss: Floats, every: int) -> list[int]:
    """After how many samples the loss was taken for one that stands still, of a look in so many."""
    return [n for n in range(LEAST, len(loss) + 1, every) if is_flat(Curve(np.arange(n), loss[:n].astype(np.float64)))]


def alike(noise: float, count: int, seed: int) -> Floats:
    """Noise of which neighbours resemble each other, as in what a logger averages."""
    made = rng(seed).standard_normal(count)
    for at in range(1, count):
        made[at] = 0.8 * made[at - 1] + 0.6 * made[at]
    return noise * made


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.08])
@pytest.mark.parametrize("seed", range(8))
def test_a_slow_fall_is_a_fall_though_each_sample_is_noisier_than_it(noise: float, seed: int) -> None:
    """A fine-tuning from 1.1 to 0.93 in 200 steps: at hardly any look, as one at which it cannot be told yet."""
    loss = around(0, noise, 200, seed) + np.linspace(1.1, 0.93, 200)
    flat = looks_flat(loss, 4)
    assert len(flat) <= (1 if noise < 0.08 else 2), flat


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("noise", [0.01, 0.05, 0.1])
def test_a_loss_that_stands_still_is_found_whatever_its_noise(noise: float, seed: int) -> None:
    loss = around(2.3, 2.3 * noise, 400, seed)
    flat = looks_flat(loss, 16)
    assert len(flat) >= 12
    assert flat[0] <= 200


def test_errors_of_a_line_count_neighbours_that_resemble_each_other_as_fewer() -> None:
    falls = [
        abs(found.fall) / found.error
        for seed in range(200)
        for found in [fall_of(alike(1.0, 300, seed).astype(np.float64))]
    ]
    assert 0.7 < np.median(falls) / 0.6745 < 1.4  # as of a normal distribution
    assert np.mean(np.array(falls) > CLEAR) < 0.06


def test_a_loss_that_stood_still_and_falls_at_last_stands_still_no_more() -> None:
    still = around(2.3, 0.05, 2100)
    loss = np.concatenate([still, np.linspace(2.3, 2.2, 40) + around(0, 0.05, 40, 1)])
    assert Learning({"loss": still}).kinds() == [("loss_plateau", "warning")]
    assert Learning({"loss": loss}).kinds() == []


def test_a_loss_that_is_the_same_in_all_bits_while_weights_move() -> None:
    (found,) = Learning({"loss": np.full(30, 18.166301727294922)}).find()
    cause = found.causes[0]
    assert (found.kind, cause.key, cause.basis) == ("training.loss_plateau", "constant", "observation")


@pytest.mark.parametrize("second", [0.5, 0.0])
def test_of_several_optimizers_the_one_that_still_steps_says_whether_weights_move(second: float) -> None:
    """As where a script trains something else first, by an optimizer of its own."""
    loss = np.concatenate([falling(40, over=20.0, noise=0.01), np.full(60, 0.6931471824645996)])
    run = Learning({"loss": loss, "grad_norm": np.full(40, 0.5)})
    signals(run.job.state, 0, "grad_norm@1", range(41, 101), [second] * 60)
    assert [one.causes[0].key for one in run.find() if one.severity == "warning"] == ["constant"] * bool(second)


def test_a_half_precision_loss_that_is_the_same_has_few_decimals_and_is_not_rounded_by_a_logger() -> None:
    (found,) = Learning({"loss": np.full(70, 2.34375)}).find()
    assert found.causes[0].key == "constant"


@pytest.mark.parametrize("digits", [2, 4, 6])
def test_a_rounded_loss_is_not_the_same_in_all_bits(digits: int) -> None:
    loss = np.round(np.concatenate([falling(120, over=20.0, noise=0.01), np.full(30, 0.2871237)]), digits)
    assert ("loss_plateau", "warning") not in Learning({"loss": loss}).kinds()


@pytest.mark.parametrize("change", [
    {"grad_norm": np.zeros(30)}, {"lr/0": np.zeros(30)}, {"loss": np.zeros(30)},
    {"loss": np.concatenate([2.0 * 0.1 ** np.arange(8), np.full(22, 1e-8)])},
])  # fmt: skip
def test_a_constant_loss_without_updates_or_fully_fitted_is_no_fault(change: Scalars) -> None:
    run = {"loss": np.full(30, 18.166301727294922), **change}
    assert ("loss_plateau", "warning") not in Learning(run).kinds()
