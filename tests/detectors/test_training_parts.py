"""Codebooks, clamps, terms of a loss, shares of parameters and validation, and healthy ones that look alike."""

import numpy as np
import pytest
from tests.detectors.learning import Floats, Learning, Scalars, Values, around, falling, logged
from tests.detectors.tensors import own, training

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.detectors.training.shares import parameter_share
from diagd.daemon.state.tensors import TensorInfo

COMMIT = falling(60, begin=0.7, floor=0.1)


def test_a_few_codes_in_use_are_a_collapse() -> None:
    run = logged(commit_loss=COMMIT, perplexity=np.linspace(2.2, 1.1, 60), codebook_utilization=np.full(60, 0.012))
    (found,) = Learning(run).find()
    assert (found.kind, found.severity) == ("training.codebook_collapse", "warning")
    assert set(found.names) == {"perplexity", "codebook_utilization", "codebook"}


@pytest.mark.parametrize(("name", "values"), [
    ("active_codes", np.linspace(300, 2, 40)), ("vq/perplexity", np.linspace(200, 4, 40)),
    ("vq/perplexity", np.concatenate([np.full(25, 24.0), np.tile([1.0, 4.9, 5.2], 10)])),
    ("dead_code_ratio", np.linspace(0.5, 0.98, 40)), ("codebook_usage", np.linspace(60, 1, 40)),
])  # fmt: skip
def test_codes_that_die_are_seen_in_whatever_is_logged_of_them(name: str, values: Floats) -> None:
    lasting = np.concatenate([values, np.full(25, values[-1])])
    assert Learning(logged(commit_loss=COMMIT, **{name: lasting})).kinds() == [("codebook_collapse", "warning")]


def test_a_share_that_the_batch_bounds_is_worth_knowing_at_most() -> None:
    run = logged(commit_loss=COMMIT, codebook_usage=np.full(60, 0.055), codebook_perplexity=np.full(60, 52.0))
    assert Learning(run).kinds() == [("codebook_collapse", "info")]


@pytest.mark.parametrize(
    ("name", "shape", "kinds"),
    [
        ("VQVAE.vq.codebook.weight", (512, 16), [("codebook_collapse", "warning")]),
        ("Net.quantizer.embedding", (512, 16), [("codebook_collapse", "warning")]),
        ("Net.embedding.weight", (512, 16), [("codebook_collapse", "warning")]),  # the only one there is
        ("Net.vq.codebook.weight", (32, 16), []),  # small, so a few are a good part of it
        ("Net.vq.codebook.weight", (128, 16), []),
        ("VQVAE.encoder.weight", (512, 16), []),
        ("Net.vq.project_in.weight", (512, 16), []),
    ],
)
@pytest.mark.parametrize("metric", ["active_codes", "codebook_perplexity"])
def test_few_codes_from_the_start_are_a_collapse_of_a_large_codebook(
    metric: str, name: str, shape: tuple[int, int], kinds: list[tuple[str, str]]
) -> None:
    run = Learning(logged(commit_loss=COMMIT, **{metric: around(4.5, 0.2, 60)}))
    run.job.state.tensors = training({TensorInfo(name, shape=shape): own}, 1).state.tensors
    assert run.kinds() == kinds


@pytest.mark.parametrize("active", [np.linspace(4, 20, 60), np.full(60, 12.0)])
def test_codes_that_the_batch_bounds_or_that_come_into_use_are_healthy(active: Floats) -> None:
    run = Learning(logged(commit_loss=COMMIT, active_codes=active))
    run.job.state.tensors = training({TensorInfo("Net.vq.codebook.weight", shape=(512, 16)): own}, 1).state.tensors
    assert run.kinds() == []


@pytest.mark.parametrize("usage", [np.linspace(0.01, 0.6, 60), np.linspace(0.01, 0.09, 60), np.full(60, 0.4)])
def test_codes_in_use_or_coming_into_use_are_healthy(usage: Floats) -> None:
    assert Learning(logged(commit_loss=COMMIT, codebook_usage=usage)).kinds() == []


def test_a_norm_at_its_limit() -> None:
    norm = np.concatenate([np.linspace(1.0, 9.8, 40), around(9.9, 0.03, 35)])
    run = logged(v_norm=norm, v_max_norm=np.full(75, 10.0))
    assert Learning(run).kinds() == [("clamp_boundary", "warning")]


def test_a_norm_that_stops_dead_has_met_a_limit() -> None:
    norm = np.concatenate([np.linspace(1.0, 5.0, 40), np.full(35, 5.0)])
    assert Learning(logged(hidden_norm=norm)).kinds() == [("clamp_boundary", "warning")]


@pytest.mark.parametrize("series", [
    logged(v_norm=np.ones(90)),  # normalised by design
    logged(v_norm=np.concatenate([np.linspace(1, 5, 40), around(5, 0.01, 50)])),  # has settled
    logged(v_norm=np.linspace(1, 8, 90), v_max_norm=np.full(90, 10.0)),
    logged(grad_norm=np.full(90, 1.0), max_norm=np.full(90, 1.0)),  # clipping of gradients
    {"lr/0": np.zeros(90), **logged(v_norm=np.concatenate([np.linspace(1, 5, 40), np.full(50, 5.0)]))},
])  # fmt: skip
def test_norms_below_a_limit_or_constant_by_design_are_healthy(series: Scalars) -> None:
    assert Learning(series).kinds() == []


def terms(**parts: Values) -> Scalars:
    """A loss that is logged with its terms, which add up to it."""
    total = np.sum([np.asarray(values) for values in parts.values()], axis=0)
    return {"loss": total, **logged(loss=total, **parts)}


def test_a_term_that_drowns_another_which_does_not_learn() -> None:
    (found,) = Learning(terms(loss_depth=falling(80, 3700, 2500), loss_seg=around(1.94, 0.03, 80))).find()
    assert (found.kind, found.names) == ("training.loss_component", ("loss_seg", "loss_depth"))


def test_a_reconstruction_that_gets_worse_under_another_term_is_drowned() -> None:
    run = terms(recon_loss=np.linspace(0.1, 9, 80), style_loss=falling(80, 9000, 1000))
    assert Learning(run).kinds() == [("loss_component", "warning")]


def test_a_loss_of_which_nothing_has_fallen_but_a_penalty_is_told_by_the_term_that_stands_still() -> None:
    for count, severity in ((140, "info"), (160, "warning")):
        run = terms(rank_loss=around(0.693, 1e-3, count), l2_loss=falling(count, 29.0, 1e-4, 10.0))
        (found,) = Learning(run).find()
        assert (found.kind, found.severity) == ("training.loss_component", severity)
        assert found.names[:2] == ("rank_loss", "l2_loss")


@pytest.mark.parametrize(("still", "beside"), [
    (falling(140, 0.693, 0.4), {}),  # it is learned
    (around(0.693, 1e-3, 140), {"bce_loss": falling(140, 0.7, 0.1)}),  # something is
    (around(15.0, 0.02, 140), {}),  # it was never small beside the other
])  # fmt: skip
def test_a_penalty_that_falls_beside_what_is_learned_or_large_is_healthy(
    still: Floats, beside: dict[str, Values]
) -> None:
    run = terms(rank_loss=still, l2_loss=falling(140, 29.0, 1e-4, 10.0), **beside)
    assert "loss_component" not in [kind for kind, _ in Learning(run).kinds()]


@pytest.mark.parametrize(("name", "kinds"), [("loss_bc", [("loss_component", "warning")]), ("loss_reg", [])])
def test_a_term_of_which_nothing_reaches_the_weights_is_drowned_however_it_wanders(
    name: str, kinds: list[tuple[str, str]]
) -> None:
    wanders = 1.9 + 0.6 * np.sin(np.linspace(0, 5, 90))
    assert Learning(terms(loss_pde=np.geomspace(2e8, 1e6, 90), **{name: wanders})).kinds() == kinds


@pytest.mark.parametrize(
    ("ends", "said"),
    [(0.72, "has fallen no further than from "), (1.0, "has not fallen"), (1.4, "has risen from ")],
)
def test_of_a_drowned_term_it_is_said_what_its_curve_shows(ends: float, said: str) -> None:
    small = np.geomspace(2.0, 2.0 * ends, 90)
    (found,) = Learning(terms(loss_pde=np.geomspace(2e8, 1e6, 90), loss_bc=small)).find()
    assert said in found.summary


def test_weights_that_the_total_shows_are_taken_for_what_they_are() -> None:
    depth, seg, reg = falling(80, 40, 30, seed=1), around(1.94, 0.03, 80), falling(80, 3, 1, seed=2)
    total = 100 * depth + seg
    assert Learning(logged(loss=total, loss_depth=depth, loss_seg=seg)).kinds() == []  # weighed a hundred times less
    total = depth + 0.001 * reg
    assert Learning(logged(loss=total, loss_depth=depth, loss_reg=reg)).kinds() == []


@pytest.mark.parametrize("parts", [
    {"recon_loss": falling(80, 500, 90), "kl_loss": np.linspace(0.01, 3, 80)},  # learns in its own way
    {"recon_loss": falling(80, 500, 90), "sparsity_loss": np.linspace(0.01, 2, 80)},
    {"loss_box": falling(80, 3, 1), "loss_cls": falling(80, 2, 0.5, seed=1)},
    {"loss_box": falling(80, 400, 100), "loss_cls": falling(80, 2, 0.5, seed=1)},  # small, and falls
    {"recon": falling(80, 3, 1), "commit": around(0.01, 0.0005, 80)},  # the codes have moved to where they are wanted
])  # fmt: skip
def test_terms_that_learn_are_healthy_whatever_their_size(parts: Scalars) -> None:
    assert Learning(terms(**parts)).kinds() == []


def test_a_reinforced_policys_terms_are_not_weighed() -> None:
    run = logged(loss=around(50, 5, 80), policy_loss=around(0, 0.01, 80), value_loss=around(50, 5, 80), reward=COMMIT)
    assert Learning(run).kinds() == []


def test_a_term_that_is_0_from_one_step_to_the_next_is_worth_knowing() -> None:
    aux = np.concatenate([falling(40, 2, 1), np.zeros(25)])
    (found,) = Learning(logged(aux_loss=aux, main_loss=falling(65))).find()
    assert (found.kind, found.severity, found.names) == ("training.loss_component", "info", ("aux_loss",))


def test_a_term_that_joined_in_late_and_is_0_again_is_told() -> None:
    late = np.concatenate([np.zeros(10), around(0.2, 0.03, 15), np.zeros(25)])
    (found,) = Learning(logged(loss_sup=falling(50, 2, 0.4), loss_unsup=late)).find()
    assert (found.kind, found.severity, found.names) == ("training.loss_component", "info", ("loss_unsup",))
    assert "since step 26" in found.summary
    few = np.concatenate([np.zeros(22), around(0.2, 0.03, 4), np.zeros(25)])
    assert Learning(logged(loss_sup=falling(51, 2, 0.4), loss_unsup=few)).kinds() == []


def test_a_term_that_was_learned_to_a_tenth_before_it_was_0_is_too() -> None:
    part = np.concatenate([falling(120, 4.0, 0.3, 40.0, noise=0.1), np.zeros(25)])
    (found,) = Learning(logged(loss_mlm=part, loss_style=falling(145, 0.7, 0.01), loss=falling(145))).find()
    assert (found.kind, found.names) == ("training.loss_component", ("loss_mlm",))


def test_a_term_that_meets_0_before_it_stays_there_is_healthy() -> None:
    met = np.concatenate([falling(40, 2, 1), [0.0, 0.3, 0.0, 0.5], np.zeros(25)])
    assert Learning(logged(hinge_loss=met, main_loss=falling(69))).kinds() == []


def test_a_term_that_comes_down_to_0_is_healthy() -> None:
    hinge = np.maximum(np.linspace(1, -0.5, 80), 0)
    assert Learning(logged(hinge_loss=hinge, main_loss=falling(80))).kinds() == []


def share(*tensors: TensorInfo, step: int = 129) -> list[Finding]:
    """What is said of a model with these parameters on two ranks."""
    job = training(dict.fromkeys(tensors, own), world=2, steps=(0, step))
    return list(parameter_share(scene_of(job.state)))


TABLE = TensorInfo("Net.embed_tokens.weight", shape=(6000, 64))
REST = TensorInfo("Net.blocks.weight", shape=(100, 1000))


def test_a_table_that_is_most_of_the_model_is_worth_knowing() -> None:
    (found,) = share(TABLE, REST, step=20)
    assert (found.kind, found.severity, found.ranks) == ("training.parameter_share", "info", (0, 1))
    assert found.names == ("Net.embed_tokens.weight",)
    assert "79%" in found.summary
    assert found.step == 0  # as it was from the start, whenever it is told


def test_one_dense_layer_that_is_nearly_all_of_a_model_is_worth_knowing() -> None:
    convs = [TensorInfo(f"Net.conv{n}.weight", shape=(16, 16, 3, 3)) for n in range(3)]
    (found,) = share(*convs, TensorInfo("Net.fc.weight", shape=(512, 4096)))
    assert (found.severity, found.names[0], found.causes[0].key) == ("info", "Net.fc.weight", "dense")
    (found,) = share(*convs, TensorInfo("Net.by_relation", shape=(6, 40, 96, 96)))
    assert found.names[0] == "Net.by_relation"
    assert share(*convs, TensorInfo("Net.fc.weight", shape=(512, 4096)), step=40) == []  # what matters more comes first
    assert share(*convs[:2], TensorInfo("Net.fc.weight", shape=(512, 4096))) == []
    assert share(*convs, *(TensorInfo(f"Net.fc{n}.weight", shape=(512, 4096)) for n in range(2))) == []


@pytest.mark.parametrize("tensors", [
    (TABLE, TensorInfo("Net.blocks.weight", shape=(1000, 1000))),
    (TensorInfo("Net.embed_tokens.weight", shape=(6000, 64), trainable=False), TensorInfo("Net.lora", shape=(8, 64))),
    (TensorInfo("Net.embed_tokens.weight", shape=(300, 64)), TensorInfo("Net.head", shape=(8, 64))),  # small
    (*(TensorInfo(f"Net.tables.{n}.embedding.weight", shape=(5000, 16)) for n in range(12)), REST),  # of features
    (TensorInfo("Net.fc.weight", shape=(6000, 64)), REST),
])  # fmt: skip
def test_other_shares_are_not_spoken_of(tensors: tuple[TensorInfo, ...]) -> None:
    assert share(*tensors) == []


def evaluated(values: list[float], every: int = 20) -> Learning:
    """A loss that falls to 0.02, and evaluations in between."""
    run = Learning({"loss": falling(every * len(values), 2.0, 0.02)})
    steps = [every * (n + 1) for n in range(len(values))]
    run.job.state.signals.put(0, "logged/val_loss", steps, values)
    return run


def test_validation_that_gets_worse_while_training_gets_better() -> None:
    (found,) = evaluated([1.8, 1.2, 1.0, 1.1, 1.3, 1.5, 1.6]).find()
    assert (found.kind, found.severity) == ("training.generalization_gap", "warning")
    assert "step 60" in found.summary


@pytest.mark.parametrize(("accuracy", "severity"), [
    ([0.4, 0.6, 0.7, 0.73, 0.76, 0.78, 0.79], "info"), ([0.4, 0.6, 0.7, 0.7, 0.69, 0.7, 0.69], "warning"),
    ([0.4, 0.6, 0.7, 0.6, 0.55, 0.5, 0.5], "warning"),
])  # fmt: skip
def test_a_loss_that_rises_while_more_is_right_is_worth_knowing_at_most(accuracy: list[float], severity: str) -> None:
    run = evaluated([1.8, 1.2, 1.0, 1.1, 1.3, 1.5, 1.6])
    run.job.state.signals.put(0, "logged/val_acc", [20 * (n + 1) for n in range(7)], accuracy)
    (found,) = run.find()
    assert (found.kind, found.severity) == ("training.generalization_gap", severity)


@pytest.mark.parametrize("values", [
    [1.8, 1.2, 1.0, 0.9, 0.88, 0.87, 0.88], [1.8, 1.2, 1.0, 1.05, 0.98, 1.04, 1.02],
    [1.0, 1.6, 0.9, 1.7, 0.8, 1.5, 1.1, 1.6], [1.8, 1.2, 1.0, 1.5],
])  # fmt: skip
def test_validation_that_falls_settles_or_is_noisy_is_healthy(values: list[float]) -> None:
    assert evaluated(values).kinds() == []


@pytest.mark.parametrize(("last", "floor", "evaluations", "said"), [
    (1.0, 0.01, 16, True), (1.0, 0.01, 9, False), (0.5, 0.01, 16, False), (1.0, 0.08, 16, False),
])  # fmt: skip
def test_validation_that_hardly_learns_while_training_learns_all(
    last: float, floor: float, evaluations: int, said: bool
) -> None:
    falls = falling(80, 2.0, floor), falling(20 * evaluations - 80, floor, 0.9 * floor)
    run = Learning({"loss": np.concatenate(falls)})
    values = np.concatenate([np.linspace(1.9, last, 5), np.full(evaluations - 5, last)])
    run.job.state.signals.put(0, "logged/val_loss", [20 * (n + 1) for n in range(evaluations)], values)
    found = run.find()
    assert [(f.kind, f.severity) for f in found] == ([("training.generalization_gap", "warning")] if said else [])
    assert all(f.causes[0].key == "apart" for f in found)
    summed = Learning({"loss": np.concatenate(falls)})
    summed.job.state.signals.put(0, "logged/val_loss", [20 * (n + 1) for n in range(evaluations)], 100 * values)
    assert summed.find() == []


def test_a_share_at_its_limit_that_was_small_at_first_need_not_be_nearly_all() -> None:
    risen = np.concatenate([np.full(20, 0.1), np.linspace(0.1, 0.88, 10), np.full(35, 0.86)])
    assert Learning(logged(action_at_limit=risen)).kinds() == [("clamp_boundary", "warning")]
    assert Learning(logged(action_at_limit=np.full(65, 0.86))).kinds() == []


def test_shares_of_what_is_clamped_are_known_by_what_is_named_in_front_of_them() -> None:
    assert Learning(logged(logvar_clamp_frac=np.full(40, 0.98))).kinds() == [("clamp_boundary", "warning")]
    assert Learning(logged(logvar_clamp_frac=np.full(40, 0.5))).kinds() == []


def test_ratios_that_are_nearly_all_clipped_have_no_gradient() -> None:
    assert Learning(logged(clip_fraction=around(0.92, 0.02, 60))).kinds() == [("clamp_boundary", "warning")]
    assert Learning(logged(clip_fraction=around(0.3, 0.05, 60))).kinds() == []


def test_values_that_are_nearly_all_held_at_their_range_have_no_gradient() -> None:
    (finding,) = Learning(logged(vf_clipfrac=np.full(40, 1.0))).find()
    assert (finding.kind, finding.causes[0].key) == ("training.clamp_boundary", "value_clip")
    settles = np.concatenate([np.full(20, 1.0), around(0.3, 0.05, 60)])  # a critic that is new
    assert Learning(logged(vf_clipfrac=settles)).kinds() == []
