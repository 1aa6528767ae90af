"""Losses that jump or leave, and healthy ones that look like it."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.detectors.learning import Floats, Learning, Scalars, Values, around, falling, logged, rng

from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.detectors.training.run import Run


def with_jump(loss: Floats, at: int, values: Values) -> Floats:
    """The loss with other values from a step on."""
    changed = loss.copy()
    changed[at : at + len(values)] = values
    return changed


def test_the_rank_whose_own_loss_jumped_is_the_culprit() -> None:
    calm = falling(160, noise=0.1)
    harmed = with_jump(calm, 121, [1.0, 1.2, 1.1, 1.0, 0.9])
    run = Learning({"loss": harmed}, world=4).rank(2, {"loss": with_jump(calm, 120, [900.0] * 8)})
    (found,) = run.find()
    assert (found.kind, found.severity, found.ranks, found.step) == ("training.loss_spike", "warning", (2,), 121)
    assert (found.causes[0].key, found.names) == ("data", ("loss",))


def test_news_of_another_rank_that_comes_first_does_not_change_who_it_was() -> None:
    calm = falling(160, noise=0.1)
    late = Learning({"loss": with_jump(calm, 121, [30.0] * 5)}, world=2)
    late.rank(1, {"loss": with_jump(calm, 120, [900.0] * 8)[:121]})
    assert late.kinds() == []


def test_a_rank_whose_loss_is_sampled_more_seldom_is_found_all_the_same() -> None:
    calm = falling(200, noise=0.1)
    run = Learning({"loss": with_jump(calm, 121, [1.0] * 20)}, world=2)
    book = run.rank(1, {"loss": []}).job.state.signals
    bad = with_jump(calm, 120, [900.0] * 20)
    book.put(1, "loss", range(3, 201, 3), [float(value) for value in bad[2::3]])
    assert [finding.ranks for finding in run.find()] == [(1,)]


def test_a_jump_of_all_ranks_is_nobodys_data() -> None:
    loss = with_jump(falling(160), 120, [40.0, 30.0, 20.0, 15.0, 9.0])
    (found,) = Learning({"loss": loss}, world=3).find()
    assert (found.kind, found.ranks, found.causes[0].key) == ("training.loss_spike", (0, 1, 2), "step")


def test_a_jump_beyond_noise_that_is_added_to_a_low_loss_is_one() -> None:
    noisy = np.abs(0.25 + 0.12 * rng(3).standard_normal(160)) + 0.03
    begun = np.concatenate([np.linspace(2.4, 0.4, 40), noisy])
    found = Learning({"loss": with_jump(begun, 150, [2.0, 1.9, 1.9, 1.8, 1.8, 1.7, 1.5, 1.3])}, world=2).find()
    assert [(f.kind, f.step, f.ranks) for f in found] == [("training.loss_spike", 151, (0, 1))]


def test_a_jump_when_the_learning_rate_rises_is_the_schedules_price() -> None:
    loss = with_jump(falling(160), 120, [8.0, 9.0, 8.0, 7.0, 6.0])
    rate = np.where(np.arange(160) < 119, 1e-4, 1e-3)
    (found,) = Learning({"loss": loss, "lr/0": rate}).find()
    assert (found.kind, found.severity, found.causes[0].key) == ("training.loss_spike", "info", "rate")


def test_a_nan_beside_it_poisons_no_window() -> None:
    loss = with_jump(falling(160), 90, [float("nan"), float("inf"), float("nan")])
    assert Learning({"loss": loss}).kinds() == []
    assert Learning({"loss": with_jump(loss, 120, [60.0] * 5)}).kinds() == [("loss_spike", "warning")]


def test_a_jump_of_all_ranks_that_is_learned_anew_is_worth_knowing_and_no_more() -> None:
    task = np.concatenate([1.1 * np.exp(-np.arange(70) / 10) + 1e-3, 5.0 * np.exp(-np.arange(50) / 7) + 0.02])
    (found,) = Learning({"loss": task}, world=2).find()
    assert (found.kind, found.severity) == ("training.loss_spike", "info")
    task[:3] = 3.4, 0.8, 0.14  # learned at once
    task[3:70] = 0.05 * np.exp(-np.arange(67) / 15) + 1e-3
    assert Learning({"loss": task}, world=2).kinds() == [("loss_spike", "info")]
    harmed = task + 20.0 * (np.arange(120) >= 70)  # many times worse than untrained
    assert ("loss_spike", "warning") in Learning({"loss": harmed}, world=2).kinds()


def test_a_rise_below_what_a_run_learned_at_once_began_with_is_no_divergence() -> None:
    begun = np.concatenate([[3.4, 0.8, 0.14], 0.05 * np.exp(-np.arange(80) / 15) + 1e-3])
    rises = np.concatenate([begun, np.linspace(0.01, 0.3, 60)])
    assert "loss_divergence" not in {kind for kind, _ in Learning({"loss": rises}, world=2).kinds()}
    assert "loss_divergence" in {
        kind for kind, _ in Learning({"loss": np.append(rises, np.linspace(0.3, 2, 60))}).kinds()
    }


def test_an_earlier_spike_does_not_hide_the_next() -> None:
    loss = with_jump(with_jump(falling(300), 200, [500.0] * 4), 245, [12.0] * 5)
    (found,) = Learning({"loss": loss}).find()
    assert (found.kind, found.step) == ("training.loss_spike", 246)


def cosine_restart(count: int = 240) -> Scalars:
    """A warm restart: the rate rises tenfold and the loss with it, to less than half of where it began."""
    phase = np.arange(count) % 120
    rate = 1e-3 * (0.5 + 0.5 * np.cos(np.pi * phase / 120))
    loss = falling(count, floor=0.2)
    loss[120:] += 0.8 * np.exp(-np.arange(count - 120) / 20)
    return {"loss": loss, "lr/0": rate}


def curriculum(count: int = 200) -> Scalars:
    """Other data from step 100 on: the model is certain of what is now wrong, and learns anew."""
    loss = falling(count)
    loss[100:] = falling(count - 100, begin=4.2, floor=0.7, over=15, seed=3)
    return {"loss": loss}


def growing_latents(count: int = 220) -> Scalars:
    """A codebook's terms grow with what the encoder puts out: the total rises to twice what it was."""
    return {"loss": np.interp(np.arange(count), [0, 20, 120, count], [1.1, 1.07, 2.4, 2.4]) + around(0, 0.02, count)}


def heavy_tail(count: int = 300) -> Scalars:
    """Rewards of Student's t: single steps a hundred times off."""
    return {"loss": 0.2 + np.abs(rng(4).standard_t(1.3, count)) ** 1.5, **logged(reward=around(0.3, 0.2, count))}


def converged(count: int = 400) -> Scalars:
    """A loss that falls by six orders of magnitude and then moves by factors of 3, all of them nothing."""
    return {"loss": np.exp(np.linspace(1.0, -13.0, count) + 0.7 * rng(5).standard_normal(count))}


def negative(count: int = 240) -> Scalars:
    """A log-likelihood of a density: from 3 to -5 through 0."""
    return {"loss": around(0.0, 0.3, count) - 5 + 8 * np.exp(-np.arange(count) / 50)}


def adversaries(count: int = 300) -> Scalars:
    """Two losses in balance, neither of which falls."""
    d_loss, g_loss = around(1.3, 0.1, count), around(0.8, 0.1, count, seed=1)
    return {"loss": (d_loss + g_loss) / 2, **logged(d_loss=d_loss, g_loss=g_loss)}


def one_bad_batch(count: int = 200) -> Scalars:
    """A single step far off, of no consequence."""
    return {"loss": with_jump(falling(count), 120, [60.0])}


def noise_floor(count: int = 500) -> Scalars:
    """It has learned what there is to learn, and stays there."""
    return {"loss": falling(count, begin=5.0, floor=1.0, over=15.0, noise=0.15)}


def rewards_grow(count: int = 300) -> Scalars:
    """A value loss that rises with the rewards it predicts."""
    return {"loss": np.linspace(0.05, 4.0, count) * np.exp(0.4 * rng(6).standard_normal(count)),
            **logged(reward=np.linspace(0, 5, count), policy_loss=around(0, 0.01, count))}  # fmt: skip


def warming_up(count: int = 150) -> Scalars:
    """The rate still rises from nothing: no wonder that the loss has not moved."""
    return {"loss": around(2.3, 0.03, count), "lr/0": np.linspace(1e-9, 1e-4, count) ** 2}


def evaluation_in_between(count: int = 200) -> Scalars:
    """Each 20th backward is of another set, with a higher loss."""
    loss = falling(count, floor=0.2)
    loss[19::20] *= 4
    return {"loss": loss}


HEALTHY = (
    cosine_restart, heavy_tail, converged, negative, adversaries, one_bad_batch, noise_floor, rewards_grow, warming_up,
    evaluation_in_between, growing_latents,
)  # fmt: skip


@pytest.mark.parametrize("run", HEALTHY)
def test_healthy_losses_are_silent(run: Callable[[], Scalars]) -> None:
    assert Learning(run()).kinds() == []


@pytest.mark.parametrize("loss", [
    np.concatenate([np.zeros(25), np.full(50, 1e-4), np.full(50, 2e-4)]),  # grows a little, as a weighed KL does
    np.concatenate([np.full(30, 1e-4), np.full(60, 5e-4)]),
    np.round(np.concatenate([falling(60, 0.4, 4e-4, over=5.0), np.full(60, 8e-4)]), 4),
])  # fmt: skip
@pytest.mark.parametrize("measured", [{}, {"reward": around(0.5, 0.1, 125)}])
def test_the_last_decimals_of_a_rounded_loss_are_no_jump_and_no_rise(loss: Floats, measured: Scalars) -> None:
    assert Learning({"loss": loss, **logged(**measured)}).kinds() == []


def test_a_rounded_loss_that_leaves_has_diverged() -> None:
    loss = np.round(np.concatenate([falling(60), 0.9 * 1.12 ** np.arange(60)]), 2)
    assert Learning({"loss": loss}).kinds() == [("loss_divergence", "critical")]


def test_a_curriculum_is_worth_knowing_at_most() -> None:
    assert {severity for _, severity in Learning(curriculum()).kinds()} <= {"info"}


def test_a_loss_that_rises_for_good_has_diverged() -> None:
    loss = np.concatenate([falling(60), 0.9 * 1.12 ** np.arange(60)])
    (found,) = Learning({"loss": loss}, world=2).find()
    assert (found.kind, found.ranks) == ("training.loss_divergence", (0, 1))


def test_a_rate_too_high_from_the_start_is_a_divergence() -> None:
    loss = 2.3 * 1.5 ** np.arange(30)
    assert Learning({"loss": loss}).kinds() == [("loss_divergence", "critical")]


def test_a_jump_is_a_spike_until_it_is_seen_not_to_come_back() -> None:
    loss = np.concatenate([falling(100), around(800, 50, 60)])
    assert Learning({"loss": loss[:110]}).kinds() == [("loss_spike", "warning")]
    assert ("loss_divergence", "critical") in Learning({"loss": loss}).kinds()


@pytest.mark.parametrize(
    ("best", "then", "told"),
    [
        (2.5, 7.5 + 0.0 * np.arange(90), True),  # above the 5 that the run began with, and it stays there
        (3.0, 7.5 + 0.0 * np.arange(40), False),  # not for long
        (3.0, 4.5 + 0.0 * np.arange(90), False),  # below it: not all is lost
        (1.0, np.linspace(8.0, 5.2, 90), False),  # harder data, and it learns them
        (4.0, 7.5 + 0.0 * np.arange(90), False),  # there was not much to lose
    ],
)
def test_a_loss_that_has_lost_all_that_it_had_learned_and_stays_there_has_diverged(
    best: float, then: Floats, told: bool
) -> None:
    levels = np.concatenate([np.linspace(5.0, 5.0, 10), np.linspace(5.0, best, 60), then])
    loss = levels * np.exp(0.03 * rng().standard_normal(len(levels)))
    found = [one for one in Learning({"loss": loss}).find() if one.kind == "training.loss_divergence"]
    assert bool(found) is told
    assert all(one.step is not None and 70 <= one.step <= 80 for one in found)


def test_a_loss_on_its_way_back_has_not_diverged() -> None:
    back = np.concatenate([falling(80), np.linspace(20.0, 2.0, 40), falling(60, begin=2.0)])
    assert ("loss_divergence", "warning") not in Learning({"loss": back}).kinds()


# --- falls without a bound


def test_a_loss_that_falls_below_zero_ever_faster_has_no_bound() -> None:
    values = np.concatenate([falling(120, 2.0, 0.4), -0.3 * np.exp(np.arange(60) / 8.0)])
    (found,) = [f for f in Learning({"loss": values}, world=2).find() if f.kind == "training.loss_divergence"]
    assert (found.causes[0].key, found.ranks) == ("unbounded", (0, 1))


def test_a_loss_that_is_below_zero_within_few_steps_and_falls_ever_faster_has_no_bound() -> None:
    run = Learning({"loss": np.concatenate([[0.06, 0.02], -0.05 * np.exp(np.arange(120) / 10.0)])})
    assert ("loss_divergence", "warning") in run.kinds()
    density = np.concatenate([[0.06], -80.0 * (1 - np.exp(-np.arange(120) / 40.0))])  # ever more slowly
    assert Learning({"loss": density}).kinds() == []


@pytest.mark.parametrize(("loss", "told"), [
    (np.linspace(3.7, 8.0, 140), True), (np.linspace(3.7, 5.0, 140), False),  # or its targets are of another kind
    (np.concatenate([np.linspace(3.7, 3.0, 40), np.linspace(3.0, 7.0, 100)]), False),  # it was learned
    (around(7.0, 0.5, 140), False),
])  # fmt: skip
def test_a_classifier_that_is_ever_worse_than_by_chance(loss: Floats, told: bool) -> None:
    run = Learning({"loss": loss + around(0.0, 0.05, 140), "loss/target_entropy": np.full(140, 3.7)})
    assert (("loss_divergence", "warning") in run.kinds()) is told


@pytest.mark.parametrize(("fact", "kind", "said"), [
    ("softmax twice 10", "loss_plateau", "below 1.46"), ("sigmoid twice", "loss_plateau", "below 0.693"),
    ("softmax over samples", "loss_plateau", "over the samples"), ("scores", "loss_divergence", "nll_loss"),
    ("sigmoid before softmax", "loss_plateau", "sigmoid"),
])  # fmt: skip
def test_a_loss_that_is_given_something_else_is_told_with_what_that_does(fact: str, kind: str, said: str) -> None:
    run = Learning({"loss": falling(40)}, world=2)
    for rank in range(2):
        run.job.state.signals.put_fact(rank, "loss/misused", 1, fact)
    (found,) = run.find()
    assert (found.kind, found.severity, found.ranks) == (f"training.{kind}", "warning", (0, 1))
    assert said in found.summary


def test_a_loss_that_has_left_is_told_with_the_step_at_which_it_did() -> None:
    loss = np.concatenate([np.geomspace(1.6, 0.2, 60), np.full(30, 0.2), np.full(60, 30.0)])
    told = Learning({"loss": loss * np.exp(around(0.0, 0.03, 150))}).find()
    assert [found.step for found in told if found.kind == "training.loss_divergence"] == [91]


def test_a_jump_from_which_it_comes_back_to_what_it_was_untrained_is_not_learned_anew() -> None:
    learns, hubs = np.geomspace(1.6, 0.2, 60), np.geomspace(100.0, 1.6, 30)
    loss = np.concatenate([learns, np.full(30, 0.2), hubs, np.full(20, 1.6)]) * np.exp(around(0.0, 0.03, 140))
    assert ("loss_spike", "warning") in Learning({"loss": loss}).kinds()


@pytest.mark.parametrize(
    "values",
    [
        2.0 - 80.0 * np.log1p(np.maximum(np.arange(200) - 20, 0) / 10.0),  # a density that becomes ever narrower
        np.concatenate([falling(100, 2.0, 0.4), np.linspace(0.3, -600.0, 100)]),  # evenly: a distance with a margin
        -0.3 * np.exp(np.arange(60) / 8.0),  # never above zero: what it means is not known
    ],
)
def test_losses_below_zero_that_slow_down_or_mean_something_else_are_not(values: Floats) -> None:
    assert [f.kind for f in Learning({"loss": values}).find() if f.kind == "training.loss_divergence"] == []


def test_a_policys_loss_that_was_0_by_construction_is_no_scale_for_a_spike() -> None:
    flat, reward = around(0.0, 1e-9, 140), around(0.5, 0.05, 240)
    loss = np.concatenate([flat, around(0.3, 0.02, 100)])
    rewarded = {"loss": loss, "logged/reward": reward, "logged/entropy": around(2.0, 0.01, 240)}
    assert {kind for kind, _ in Learning(rewarded).kinds()}.isdisjoint({"loss_spike", "loss_divergence"})
    rewarded["loss"] = np.concatenate([flat, around(60.0, 2.0, 100)])
    assert {"loss_spike", "loss_divergence"} & {kind for kind, _ in Learning(rewarded).kinds()}


def test_a_rank_whose_loss_follows_anothers_jump_is_not_told_once_that_is_old() -> None:
    begun = np.concatenate([np.linspace(1.0, 0.0126, 20), around(0.0126, 0.0008, 120)])
    slow = np.linspace(0.35, 0.15, 110)
    spoilt = np.concatenate([begun, np.full(6, 1000.0), slow])
    follows = np.concatenate([begun, around(0.0126, 0.0008, 6), slow])
    young = Learning({"loss": follows[:160]}, world=2).rank(1, {"loss": spoilt[:160]})
    assert [(found.kind, found.ranks) for found in young.find()] == [("training.loss_spike", (1,))]
    old = Learning({"loss": follows}, world=2).rank(1, {"loss": spoilt})
    assert not [found for found in old.find() if found.ranks == (0,)]
    alone = Learning({"loss": follows}, world=2).rank(1, {"loss": np.concatenate([begun, around(0.0126, 0.0008, 116)])})
    assert [found.ranks for found in alone.find()] == [(0,)]


def test_counts_beside_the_learning_rates_are_none() -> None:
    run = Learning({"loss": falling(80), "lr/scheduled": [float(n) for n in range(80)]})
    assert [curve.values.max() for curve in Run(scene_of(run.job.state)).rates(0)] == [1e-3]
