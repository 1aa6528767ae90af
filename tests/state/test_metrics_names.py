"""What logged metrics are called, and what they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from diagd.daemon.state.metrics_names import CANONICAL, SPLIT, canonical, find, part, resolution

USUAL = {
    "loss": "loss Loss train_loss train/loss trainLoss training-loss loss/total lm_loss TRAIN_LOSS nll ce_loss",
    "val_loss": "val_loss eval_loss eval/loss valid/loss_epoch test_loss validation-loss",
    "lr": "lr LR learning_rate lr-AdamW/pg1 lr_0 lr0 group0_lr train/learning_rate actor/lr last_lr",
    "grad_norm": "grad_norm gnorm gradNorm grad-norm train/grad_norm total_norm global_norm actor/grad_norm |g|",
    "entropy": "entropy policy/entropy_avg actor/entropy train/entropy token_entropy",
    "kl": "kl KL approx_kl kl_loss objective/kl policy/approxkl_avg actor/ppo_kl train/approx_kl kl_div mean_kl",
    "reward": "reward rewards reward_mean mean_reward rewards/mean critic/rewards/mean rollout/ep_rew_mean",
    "reward_std": "reward_std rewards/std std_reward",
    "advantage": "advantage adv adv_mean critic/advantages/mean",
    "advantage_std": "adv_std advantages/std",
    "clip_fraction": "clip_fraction clipfrac train/clip_fraction pg_clipfrac clip_ratio/region_mean",
    "value_clip_fraction": "vf_clipfrac critic/vf_clipfrac value_clip_fraction",
    "perplexity": "perplexity ppl train_ppl",
    "codebook_perplexity": "codebook_perplexity vq/perplexity",
    "codebook_usage": "codebook_usage code_utilization vq_usage",
    "accuracy": "acc accuracy top1 Acc@1 train_acc",
    "val_accuracy": "val_acc eval_accuracy test/top1",
    "loss_part": "loss_seg depth_loss l_depth losses/box train/contrastive_loss masked_mse",
    "policy_loss": "policy_loss pg_loss loss/policy_avg train/policy_gradient_loss",
    "value_loss": "value_loss vf_loss train/value_loss",
    "distinct_tokens": "distinct_tokens distinct-1 unique_tokens",
    "token_top_share": "token_top_share top_token_share",
    "norm": "v_norm hidden_norm latent/norm",
    "norm_limit": "max_norm norm_limit",
    "step": "step global_step trainer/global_step iter iteration it num_updates",
    "epoch": "epoch Epoch ep",
}
NOT_THAT = (
    "kl_coef lr_decay loss_weight best_val_loss loss_std seq_len tokens_per_second usage score scale memory_usage "
    "max_reward entropy_coef grad_norm/layer1.weight rewards/chosen it/s eta target_kl lossless v_num rank 12"
)


@dataclass
class Logged:
    """A state with nothing but the names that rank 0 logs."""

    logged: Sequence[str]
    metric_names: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def signals(self) -> "Logged":
        return self

    def names(self, rank: int, /) -> tuple[str, ...]:
        return tuple(self.logged) if rank == 0 else ()

    def fact(self, rank: int, name: str, /) -> tuple[int, str] | None:
        return (3, self.facts[name]) if name in self.facts else None


def logged(names: str) -> Logged:
    return Logged([f"logged/{name}" for name in names.split()])


@pytest.mark.parametrize(("known", "name"), [(known, name) for known, names in USUAL.items() for name in names.split()])
def test_usual_spellings_are_known(known: str, name: str) -> None:
    assert canonical(name) == known == canonical(f"logged/{name}")


@pytest.mark.parametrize("name", NOT_THAT.split())
def test_settings_statistics_and_other_numbers_are_no_metric(name: str) -> None:
    assert canonical(name) is None


def test_what_canonical_says_is_one_of_the_names_that_are_told() -> None:
    told = CANONICAL | {f"val_{name}" for name in SPLIT}
    assert {canonical(name) for names in USUAL.values() for name in names.split()} <= told


def test_the_terms_of_a_loss_are_named() -> None:
    names = ("loss_seg", "depth_loss", "train/kl_loss", "loss/policy_avg")
    assert [part(name) for name in names] == ["seg", "depth", "kl", "policy"]
    assert part("train/loss") == part("grad_norm") == ""


def test_the_users_own_table_comes_first() -> None:
    own = {"q_div": "kl", "loss": ""}
    assert (canonical("q_div", own), canonical("loss", own), canonical("lr", own)) == ("kl", None, "lr")


def test_signals_are_found_by_what_they_are_the_plainest_first() -> None:
    state = logged("train/loss_epoch loss val_loss grad_norm")
    assert find(state, 0, "loss") == ("logged/loss", "logged/train/loss_epoch")
    assert find(state, 0, "val_loss") == ("logged/val_loss",)
    assert find(state, 1, "loss") == ()


def test_signals_that_the_script_does_not_log_are_not_found_among_those_that_it_logs() -> None:
    state = Logged(["loss", "grad_norm", "logged/gnorm"])
    assert (find(state, 0, "loss"), find(state, 0, "grad_norm")) == ((), ("logged/gnorm",))


def test_a_single_loss_of_another_name_is_the_loss_and_of_several_none_is() -> None:
    assert find(logged("contrastive_loss lr"), 0, "loss") == ("logged/contrastive_loss",)
    assert find(logged("d_loss g_loss"), 0, "loss") == ()
    assert find(logged("loss depth_loss"), 0, "loss") == ("logged/loss",)


def test_all_terms_of_a_loss_are_found_whatever_else_they_are() -> None:
    state = logged("loss policy_loss kl_loss kl commit loss_aux")
    found = {"logged/policy_loss", "logged/kl_loss", "logged/commit", "logged/loss_aux"}
    assert set(find(state, 0, "loss_part")) == found


def test_a_plain_perplexity_is_a_codebooks_only_beside_its_other_metrics() -> None:
    assert find(logged("loss commit perplexity usage"), 0, "codebook_perplexity") == ("logged/perplexity",)
    assert find(logged("loss commit perplexity usage"), 0, "codebook_usage") == ("logged/usage",)
    assert find(logged("loss perplexity usage"), 0, "codebook_perplexity") == ()
    assert find(logged("loss perplexity usage"), 0, "codebook_usage") == ()


def test_printed_values_are_known_to_be_rounded() -> None:
    state = Logged(["logged/kl"], facts={"logged/kl": "decimals 4", "logged/lr": "other"})
    assert [resolution(state, 0, f"logged/{name}") for name in ("kl", "lr", "loss")] == [0.5e-4, 0.0, 0.0]
