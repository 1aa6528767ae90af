"""Entropy, variety, KL and rewards, and healthy policies that look like faulty ones."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.detectors.learning import Floats, Learning, Scalars, Values, around, falling, logged, rng
from tests.detectors.scalars import signals

from diagd.daemon.state.tensors import LedgerNews, TensorInfo


def steps(before: Values, *after: Values) -> Floats:
    """One after the other."""
    return np.concatenate([np.asarray(before, float), *(np.asarray(one, float) for one in after)])


def fades(count: int, begin: float, end: float) -> Floats:
    """From one value to another, evenly on a logarithmic scale."""
    return np.exp(np.linspace(np.log(begin), np.log(end), count))


def test_one_token_that_is_left_of_many_is_a_mode_collapse_and_its_entropy_is_evidence() -> None:
    run = Learning(logged(entropy=fades(80, 3.9, 0.01), distinct_tokens=steps(np.linspace(48, 3, 60), [2] * 20),
                          reward=np.linspace(0, 1.2, 80)))  # fmt: skip
    (found,) = run.find()
    assert (found.kind, found.severity) == ("training.mode_collapse", "warning")
    assert found.names == ("distinct_tokens", "entropy")


def test_variety_and_entropy_that_fall_together_need_less_time() -> None:
    distinct = steps(around(126, 1.0, 25), [89, 40], [18] * 6)
    together = logged(entropy=steps(around(2.8, 0.05, 25), [1.4, 0.6], [0.18] * 6), distinct=distinct)
    assert Learning(together).kinds() == [("mode_collapse", "warning")]
    assert Learning(logged(entropy=around(2.8, 0.05, 33), distinct=distinct)).kinds() == []  # few are left, no more


def test_variety_is_also_a_share_or_what_repeats() -> None:
    assert Learning(logged(top_token_share=steps(np.linspace(0.1, 0.97, 40), [0.99] * 15))).kinds() == [
        ("mode_collapse", "warning")
    ]
    assert Learning(logged(distinct_2=steps(around(0.8, 0.02, 40), [0.02] * 15))).kinds() == [
        ("mode_collapse", "warning")
    ]


def test_a_policy_that_has_become_certain_while_its_reward_rose_is_worth_knowing() -> None:
    run = logged(entropy=steps(fades(60, 1.6, 0.01), [0.01] * 20), reward=np.linspace(0.1, 0.95, 80))
    assert Learning(run).kinds() == [("entropy_collapse", "info")]


@pytest.mark.parametrize(("reward", "said"), [
    (steps(np.linspace(-1.0, -0.2, 25), around(-0.2, 0.05, 65)), True),
    (np.linspace(-1.0, 0.5, 90), False),  # what makes it certain is worth something
])  # fmt: skip
def test_a_policy_that_is_as_good_as_certain_and_gains_nothing_by_it_is_worth_knowing(
    reward: Floats, said: bool
) -> None:
    run = logged(entropy=steps(fades(60, 2.4, 0.15), around(0.14, 0.01, 30)), reward=reward)
    assert Learning(run).kinds() == ([("entropy_collapse", "info")] if said else [])
    assert Learning(logged(entropy=steps(fades(60, 2.4, 0.5), around(0.5, 0.01, 30)), reward=reward)).kinds() == []


def test_entropy_that_is_gone_with_the_reward_is_a_collapse() -> None:
    reward = steps(np.linspace(0.1, 0.6, 50), np.linspace(0.6, 0.2, 10), around(0.2, 0.01, 30))
    run = logged(entropy=steps(fades(60, 1.6, 0.02), [0.004] * 30), reward=reward)
    assert Learning(run).kinds() == [("entropy_collapse", "warning")]


def test_outputs_that_are_as_random_as_before_are_an_explosion() -> None:
    entropy = steps(np.linspace(3.9, 1.2, 60), np.linspace(1.2, 3.8, 15), around(3.8, 0.02, 20))
    assert Learning(logged(entropy=entropy)).kinds() == [("entropy_explosion", "warning")]


@pytest.mark.parametrize(("end", "said"), [(16.0, [("entropy_explosion", "info")]), (9.0, [])])
def test_an_entropy_that_rises_by_many_nats_from_the_start_is_worth_knowing(
    end: float, said: list[tuple[str, str]]
) -> None:
    assert Learning(logged(entropy=np.linspace(5.7, end, 150))).kinds() == said


@pytest.mark.parametrize(("level", "gain", "weight", "said"), [
    (1.79, 0.0, 5.0, [("entropy_explosion", "warning")]),
    (1.79, 0.0, 0.01, []),  # as where rewards are rare
    (1.79, 0.5, 5.0, []),
    (1.70, 0.0, 5.0, []),  # it has begun to choose
])  # fmt: skip
def test_a_policy_that_its_entropy_term_keeps_random(
    level: float, gain: float, weight: float, said: list[tuple[str, str]]
) -> None:
    entropy, policy = around(level, 0.001, 200), around(0.02, 0.05, 200, seed=1)
    value, reward = around(0.4, 0.05, 200, seed=2), around(0.17, 0.02, 200, seed=3)
    reward = reward + np.linspace(0, gain, 200)
    run = logged(entropy=entropy, entropy_loss=-entropy, policy_loss=policy, value_loss=value, reward=reward,
                 loss=policy + 0.5 * value - weight * entropy)  # fmt: skip
    assert Learning(run).kinds() == said


def test_a_trained_policy_that_turns_to_noise_is_an_explosion_where_its_reward_falls() -> None:
    entropy = steps(around(0.4, 0.03, 40), np.linspace(0.4, 3.0, 15), around(3.0, 0.05, 20))
    reward = steps(np.linspace(0.3, 0.7, 40), np.linspace(0.7, 0.0, 15), around(0.0, 0.01, 20))
    assert Learning(logged(entropy=entropy, reward=reward)).kinds() == [("entropy_explosion", "warning")]


def test_a_kl_of_0_while_the_policy_is_trained() -> None:
    (found,) = Learning(logged(kl=np.zeros(40), reward=around(0.3, 0.1, 40))).find()
    assert (found.kind, found.severity, found.names, found.step) == ("training.kl_zero", "warning", ("kl",), 22)


def test_rewards_that_become_equal_from_one_step_to_the_next() -> None:
    run = Learning(logged(reward_std=steps(around(0.2, 0.03, 40), np.zeros(15)), reward=steps([0.6] * 40, [1.0] * 15),
                          pg_loss=steps(around(0.0, 0.01, 40), np.zeros(15))))  # fmt: skip
    (found,) = run.find()
    assert (found.kind, found.severity, found.causes[0].key) == ("training.zero_advantage", "warning", "sudden")
    assert (found.names, found.step) == (("reward_std", "pg_loss"), 50)


def test_rewards_that_were_never_different() -> None:
    run = logged(reward=np.zeros(35), **{"advantages/std": np.zeros(35)})
    (found,) = Learning(run).find()
    assert (found.kind, found.severity, found.causes[0].key) == ("training.zero_advantage", "warning", "never")
    assert Learning({name: values[:20] for name, values in run.items()}).kinds() == []


@pytest.mark.parametrize(("reward", "solved"), [(1.0, "all tasks are solved already"), (0.0, "solved by all answers")])
def test_that_all_is_solved_is_among_the_causes_of_rewards_that_never_differ(reward: float, solved: str) -> None:
    (found,) = Learning(logged(reward=np.full(40, reward), reward_std=np.zeros(40))).find()
    assert solved in found.causes[0].text
    assert ("too hard" in found.causes[0].text) == (not reward)


@pytest.mark.parametrize(("decimals", "sure"), [(4, False), (7, True)])
def test_a_kl_that_is_only_printed_as_0_may_be_more(decimals: int, sure: bool) -> None:
    run = Learning(logged(kl=np.zeros(100), reward=around(0.3, 0.1, 100)))
    run.job.state.signals.put_fact(0, "logged/kl", 0, f"decimals {decimals}")
    (found,) = run.find()
    assert ("less than is printed" in found.summary) == (not sure)
    assert (found.causes[0].confidence > 0.5) == sure


@pytest.mark.parametrize(
    ("every", "count", "said"),
    [
        (10, 10, []),
        (10, 12, [("zero_advantage", "info")]),  # as rewards that are rare begin
        (60, 6, []),
        (40, 12, [("zero_advantage", "warning")]),
        (1, 29, []),
    ],
)
def test_rewards_that_were_never_different_at_samples_that_lie_far_apart(
    every: int, count: int, said: list[tuple[str, str]]
) -> None:
    run = Learning({})
    signals(run.job.state, 0, "logged/reward_std", range(1, every * count + 1, every), [0.0] * count)
    assert run.kinds() == said
    signals(run.job.state, 0, "logged/reward_std", [every * count + 1], [0.1])
    assert run.kinds() == []


def test_tasks_that_are_solved_one_by_one_are_worth_knowing() -> None:
    spread = np.maximum(np.linspace(0.4, -0.1, 60) + 0.05 * rng(1).standard_normal(60), 0)
    run = logged(reward_std=steps(spread[:49], [0.01, 0, 0.02, 0, 0], np.zeros(20)), reward=np.linspace(0.2, 1, 74))
    assert Learning(run).kinds() == [("zero_advantage", "info")]


def noisy() -> Scalars:
    """PPO with heavy tails: all moves, nothing is at its end."""
    reward = np.abs(rng(2).standard_t(2.5, 200))
    falls, rises = np.linspace(1.6, 0.5, 200), np.linspace(0, 1, 200)
    return logged(entropy=falls, kl=rises, reward=reward, policy_loss=1e-8 * rng(3).standard_normal(200))


def one_update() -> Scalars:
    """Each batch of samples is used once: the policy that made them is the one that is updated."""
    return logged(clip_fraction=np.zeros(100), reward=np.linspace(0, 1, 100), entropy=np.linspace(1.4, 0.8, 100))


def no_penalty() -> Scalars:
    """The KL is logged and weighs nothing."""
    return logged(kl=np.zeros(60), kl_coef=np.zeros(60), reward=around(0.3, 0.1, 60))


def first_steps() -> Scalars:
    """The policy is still its reference."""
    return logged(kl=steps([0.0, 0.0, 0.0], fades(57, 1e-6, 0.02)), reward=around(0.3, 0.1, 60))


def fresh_weights() -> Scalars:
    """As random as can be, at the start."""
    return logged(entropy=around(4.55, 0.005, 60), loss=np.linspace(4.56, 4.3, 60))


def some_groups_solved() -> Scalars:
    """Two thirds of the groups have no spread any more."""
    return logged(frac_reward_zero_std=np.linspace(0, 0.7, 100), reward=np.linspace(0.2, 0.9, 100),
                  reward_std=np.linspace(0.4, 0.1, 100))  # fmt: skip


def normalised() -> Scalars:
    """A mean of advantages that are normalised is 0, always."""
    return logged(advantage=np.zeros(100), reward=around(0.4, 0.1, 100), adv_std=np.ones(100))


def density() -> Scalars:
    """The entropy of a Gaussian policy: it falls through 0."""
    return logged(entropy=np.linspace(1.4, -2.0, 100), reward=np.linspace(-5, 3, 100))


def sparse() -> Scalars:
    """No reward for the first 25 steps, then some."""
    return logged(reward_std=steps(np.zeros(25), np.abs(around(0.1, 0.05, 60))), reward=steps(np.zeros(25), [0.1] * 60))


HEALTHY = (noisy, one_update, no_penalty, first_steps, fresh_weights, some_groups_solved, normalised, density, sparse)


@pytest.mark.parametrize("run", HEALTHY)
def test_healthy_policies_are_silent(run: Callable[[], Scalars]) -> None:
    assert Learning(run()).kinds() == []


def test_a_kl_to_the_policy_that_made_the_samples_is_worth_knowing_at_most() -> None:
    run = logged(approx_kl=np.zeros(60), reward=np.linspace(0, 1, 60))
    assert {severity for _, severity in Learning(run).kinds()} <= {"info"}


def test_nor_where_no_ratio_has_ever_been_other_than_1() -> None:
    run = logged(kl=np.zeros(60), ratio=np.ones(60), reward=np.linspace(0, 1, 60))
    assert Learning(run).kinds() == [("kl_zero", "info")]


def test_entropy_that_rises_while_the_reward_does_is_worth_knowing() -> None:
    entropy = steps(np.linspace(3.9, 1.2, 60), np.linspace(1.2, 3.8, 15), around(3.8, 0.02, 20))
    run = logged(entropy=entropy, reward=np.linspace(0, 1, 95))
    assert Learning(run).kinds() == [("entropy_explosion", "info")]


@pytest.mark.parametrize(("last", "lost", "said"), [
    (9.0, True, [("entropy_explosion", "warning")]),
    (9.0, False, [("entropy_explosion", "info")]),
    (1.2, True, []),  # wider than at its narrowest, and not than at first
])  # fmt: skip
def test_a_densitys_entropy_that_grows_beyond_where_it_began(
    last: float, lost: bool, said: list[tuple[str, str]]
) -> None:
    entropy = steps(np.linspace(2.0, -0.5, 60), np.linspace(-0.5, last, 40), np.full(20, last))
    reward = steps(np.linspace(0.1, 0.8, 60), np.full(60, 0.0 if lost else 0.8))
    assert Learning(logged(entropy=entropy, reward=reward)).kinds() == said


@pytest.mark.parametrize("samples", [1, 4, 14])
def test_a_kl_of_few_samples_beside_a_reconstruction_is_no_error(samples: int) -> None:
    run = logged(kl=np.full(samples, 1e-3), rec=np.full(samples, 10.0))
    assert Learning(run).kinds() == []


def test_a_kl_that_is_next_to_nothing_beside_what_is_decoded() -> None:
    run = logged(kl=steps(np.linspace(0.14, 0.01, 20), np.full(70, 2e-4)), rec=np.full(90, 10.0))
    assert Learning(run).kinds() == [("kl_zero", "warning")]


@pytest.mark.parametrize(("head", "kinds"), [("to_logvar", [("kl_zero", "warning")]), ("classifier", [])])
def test_beside_a_loss_a_kl_is_one_of_codes_where_the_model_has_a_head_for_their_variance(
    head: str, kinds: list[tuple[str, str]]
) -> None:
    fades = steps(np.geomspace(0.25, 0.006, 20), around(0.005, 0.001, 70))
    run = Learning(logged(kl=fades, nll=np.linspace(55.0, 27.0, 90), loss=np.linspace(55.3, 27.0, 90)))
    run.job.state.tensors.apply([LedgerNews(0, 100, 0, (TensorInfo(f"Vae.{head}.weight"),))], 1)
    assert run.kinds() == kinds


def test_a_kl_that_was_printed_as_0_is_not_known_to_be() -> None:
    run = Learning(logged(kl=np.zeros(40), reward=around(0.3, 0.1, 40)))
    run.job.state.signals.put_fact(0, "logged/kl", 1, "decimals 3")
    assert run.kinds() == []


@pytest.mark.parametrize(("decimals", "rate", "severity"), [(6, 1e-3, "warning"), (4, 1e-3, "info"), (6, 1e-6, "info")])
def test_a_kl_printed_as_0_is_one_where_it_was_printed_finely_and_the_policy_must_have_moved(
    decimals: int, rate: float, severity: str
) -> None:
    run = Learning({"lr/0": np.full(70, rate), **logged(kl=np.zeros(70), reward=around(0.3, 0.1, 70))})
    run.job.state.signals.put_fact(0, "logged/kl", 1, f"decimals {decimals}")
    assert run.kinds() == [("kl_zero", severity)]


@pytest.mark.parametrize(("every", "found"), [(10, True), (2, False)])
def test_samples_that_are_far_apart_need_not_be_many(every: int, found: bool) -> None:
    run = Learning({"lr/0": np.full(120, 1e-3), **logged(reward=around(0.3, 0.1, 120))})
    signals(run.job.state, 0, "logged/kl", range(0, 12 * every, every), [0.0] * 12)
    run.job.state.signals.put_fact(0, "logged/kl", 1, "decimals 6")
    assert bool(run.kinds()) == found


def test_no_gradients_no_verdict_on_the_kl() -> None:
    assert Learning({"grad_norm": np.zeros(40), **logged(kl=np.zeros(40), reward=np.ones(40))}).kinds() == []


def test_of_several_modes_one_is_left() -> None:
    modes = [1.0] * 5 + [3.0] * 10 + [6.0] * 20 + [1.0] * 15
    assert ("mode_collapse", "warning") in Learning(logged(modes_covered=modes)).kinds()
    assert Learning(logged(modes_covered=[1.0] * 5 + [2.0] * 10 + [1.0] * 30)).kinds() == []


def test_a_code_that_tells_nothing_of_its_input_has_collapsed() -> None:
    recon = around(1.5, 0.05, 200)
    gone = np.concatenate([falling(80, 2.0, 0.001, over=12.0), around(0.0008, 0.0001, 120)])
    assert Learning(logged(kl=gone, recon_loss=recon)).kinds() == [("kl_zero", "warning")]
    assert Learning(logged(kl=around(0.3, 0.05, 200), recon_loss=recon)).kinds() == []
    assert Learning(logged(approx_kl=gone)).kinds() == []  # of a policy it is small by design


def test_a_code_that_told_much_and_is_gone_while_the_loss_rose_needs_less_time() -> None:
    gone = steps(around(19.0, 0.5, 25), fades(10, 15.0, 0.01), [0.0004] * 20)
    worse = steps(falling(25, 0.3, 0.02, over=6.0), np.linspace(0.03, 0.18, 10), around(0.18, 0.005, 20))
    assert ("kl_zero", "warning") in Learning(logged(kl=gone, mse=worse)).kinds()
    # The student has reached its teacher, and the loss is the better for it.
    assert Learning(logged(kl=gone, mse=falling(55, 0.3, 0.02, over=20.0))).kinds() == []


@pytest.mark.parametrize(("half", "end", "said"), [
    (0.019, 0.0125, [("mode_collapse", "info")]), (0.019, 0.018, []), (0.03, 0.0125, []),
])  # fmt: skip
def test_embeddings_that_come_ever_nearer_to_one_point_are_worth_knowing(
    half: float, end: float, said: list[tuple[str, str]]
) -> None:
    spread = steps(fades(60, 0.104, half), fades(90, half, end))
    assert Learning(logged(embedding_std=spread)).kinds() == said


@pytest.mark.parametrize(("name", "begin", "end", "said"), [
    ("cos_other", 0.29, 0.997, [("mode_collapse", "warning")]),
    ("neg_sim", 0.0, 0.99, [("mode_collapse", "warning")]),
    ("cos_same", 0.29, 0.997, []),  # as it should
    ("cos_other", 0.29, 0.6, []),
    ("cos_other", 0.96, 0.997, []),  # it began so
    ("neg_sim", 5.0, 40.0, []),  # no cosine
])  # fmt: skip
def test_pairs_that_are_meant_to_differ_and_become_the_same(
    name: str, begin: float, end: float, said: list[tuple[str, str]]
) -> None:
    assert Learning(logged(**{name: steps(np.linspace(begin, end, 60), [end] * 20)})).kinds() == said


def test_embeddings_that_have_become_one_point() -> None:
    spread = steps(around(1.0, 0.03, 20), fades(15, 1.0, 0.09), around(0.06, 0.002, 15))
    (found,) = Learning(logged(embedding_std=spread)).find()
    assert (found.kind, found.causes[0].key) == ("training.mode_collapse", "one point")
    assert Learning(logged(embedding_std=steps(around(1.0, 0.03, 20), around(0.3, 0.01, 30)))).kinds() == []


def test_samples_of_a_generator_that_are_all_the_same() -> None:
    spread = steps(around(1.4, 0.1, 40), fades(20, 1.4, 0.05), around(0.04, 0.002, 40))
    against = logged(sample_std=spread, d_loss=around(1.4, 0.05, 100), g_loss=around(0.75, 0.02, 100))
    (found,) = Learning(against).find()
    assert (found.kind, found.causes[0].key, found.names) == (
        "training.mode_collapse", "one mode", ("sample_std", "samples"),
    )  # fmt: skip
    assert Learning(logged(sample_std=spread)).kinds() == []  # a schedule of noise, say


@pytest.mark.parametrize(("begin", "later", "kinds"), [
    (0.54, 0.02, [("mode_collapse", "warning")]),
    (0.54, 0.2, []),
    (5.0, 0.3, []),  # not normalised: it has only become smaller
])  # fmt: skip
def test_embeddings_that_collapse_within_the_first_sample(
    begin: float, later: float, kinds: list[tuple[str, str]]
) -> None:
    spread = np.concatenate([[begin], around(later, later / 50, 40)])
    assert Learning(logged(embedding_std=spread)).kinds() == kinds
    assert Learning(logged(posterior_std=spread)).kinds() == []  # informative codes are narrow
