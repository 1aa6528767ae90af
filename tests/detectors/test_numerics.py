"""NaN, gradients, dead parameters and learning rates: each fault is named, and healthy trainings like it are not."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from tests.detectors.scalars import everywhere, signals
from tests.detectors.states import Job, job
from tests.detectors.tensors import ledgers, same

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.numerics.rates import SEEN
from diagd.daemon.detectors.numerics.rules import NUMERICS
from diagd.daemon.detectors.registry import detect
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.state.model import Frame
from diagd.daemon.state.tensors import TensorInfo

RNG = np.random.default_rng(0)


def run(world: int = 1, **series: Sequence[float]) -> Job:
    """A job whose ranks all show these series; `__` in a name stands for `/`."""
    made = job(world)
    everywhere(made.state, range(world), {name.replace("__", "/"): values for name, values in series.items()})
    return made


def described(made: Job, **shapes: tuple[int, ...]) -> Job:
    """Say what parameters there are; `__` in a name stands for a dot."""
    tensors = {TensorInfo(name.replace("__", "."), shape=shape): same for name, shape in shapes.items()}
    world = len(made.ranks)
    made.state.tensors.apply(ledgers(tensors, range(world), (0,)), world)
    return made


def found(made: Job) -> list[Finding]:
    scene = scene_of(made.report().state)
    return [finding for rule in NUMERICS for finding in rule(scene)]


def kinds(made: Job) -> list[tuple[str, tuple[int, ...], str]]:
    return [(f.kind, f.ranks, f.severity.value) for f in found(made)]


def noisy(levels: Sequence[float], by: float = 0.2) -> list[float]:
    return [float(level * math.exp(RNG.normal(0, by))) for level in levels]


def norms(made: Job, name: str, levels: Sequence[float], ranks: Sequence[int] = (0,), every: int = 4) -> None:
    """A parameter's gradient norm, told every few steps."""
    for rank in ranks:
        signals(made.state, rank, f"grad_norm/{name}", range(1, every * len(levels), every), levels)


# --- NaN


def test_the_rank_whose_own_loss_was_nan_first_is_named_and_not_those_that_got_it_from_the_reduction() -> None:
    made = job(3)
    for rank in range(3):
        bad = 50 if rank == 2 else 51
        signals(made.state, rank, "loss", range(1, 60), [2.0 if s < bad else math.nan for s in range(1, 60)])
        signals(made.state, rank, "grad_norm", range(1, 60), [1.0 if s < 50 else math.nan for s in range(1, 60)])
    (one,) = found(made)
    assert (one.kind, one.ranks, one.step, one.names[0]) == ("numerics.nonfinite", (2,), 50, "loss")
    assert one.causes[0].key == "loss"


def test_gradients_that_are_nan_before_any_loss_is_are_named_with_their_parameters() -> None:
    made = run(2, loss=[1.0] * 20 + [math.nan] * 9, grad_norm=[1.0] * 19 + [math.inf] * 10)
    made.state.signals.put_fact(0, "gradients/nonfinite", 20, "Net.stem.weight, Net.stem.bias")
    (one,) = found(made)
    assert (one.kind, one.ranks, one.step) == ("numerics.nonfinite", (0, 1), 20)
    assert one.names == ("grad", "Net.stem.weight", "Net.stem.bias")
    assert "not whose they were" in one.causes[0].text


def test_weights_that_hold_nan_already_have_it_from_the_gradients_of_the_step_before() -> None:
    made = run(2, loss=[1.0] * 20 + [math.nan] * 9)
    for rank in range(2):
        signals(made.state, rank, "grad_norm", range(2, 30, 2), [1.0] * 10 + [math.nan] * 4)
        made.state.signals.put_fact(rank, "nonfinite/origin", 21, "weight\tNet.stem.weight, Net.stem.bias")
        made.state.signals.put_fact(rank, "gradients/nonfinite", 22, "Net.out.weight, Net.stem.weight")
    (one,) = found(made)
    assert (one.ranks, one.step, one.causes[0].key) == ((0, 1), 20, "gradient")
    assert one.names == ("grad", "Net.stem.weight", "Net.stem.bias")


def test_weights_that_hold_nan_on_one_rank_alone_have_it_from_no_update() -> None:
    late = run(2, loss=[1.0] * 20 + [math.nan] * 9, grad_norm=[1.0] * 20 + [math.nan] * 9)
    series = late.state.signals.series(0, "loss")
    assert series is not None
    series.values[20] = 1.5  # rank 0's is still finite in the step in which rank 1's no longer is
    late.state.signals.put_fact(1, "nonfinite/origin", 21, "weight\tNet.stem.bias")
    (one,) = found(late)
    assert (one.ranks, one.step) == ((1,), 21)
    assert "its weights hold them already" in one.summary
    assert one.names == ("loss", "Net.stem.bias")


@pytest.mark.parametrize("origin", [92, 96, None])  # looked for again later, or not at all, as on a device
def test_gradients_of_one_rank_stand_when_all_losses_have_become_nan_by_them(origin: int | None) -> None:
    """Nothing but the first loss that is not finite, and what a rank's own pass gave, is known of each step."""
    made, steps = job(2), [*range(8, 89, 8), 92, 96, 104, 112]
    for rank in range(2):
        signals(made.state, rank, "loss", steps, [1.0 if s < 92 else math.nan for s in steps])
        signals(made.state, rank, "grad_norm", range(8, 113, 8), [1.0] * 11 + [math.nan] * 3)
        signals(made.state, rank, "gradients/own_nonfinite", (90, 91), (0.0, float(rank == 1)))
        if origin is not None:
            made.state.signals.put_fact(rank, "nonfinite/origin", origin, "weight\tNet.stem.bias")
    (one,) = found(made)
    assert (one.ranks, one.step, one.causes[0].key) == ((1,), 91, "gradient")
    assert ("losses were still finite" in one.summary) == (origin is not None)
    assert "those of rank 0 were finite" in one.summary
    assert any("loss of ranks 0,1 is not finite from step 92 on" in e.what for e in one.causes[0].evidence)
    assert not any("not known" in e.what for e in one.causes[0].evidence)


def test_gradients_that_were_not_applied_are_not_what_a_later_loss_is_nan_by() -> None:
    made = run(2, loss=[1.0] * 20 + [math.nan] * 9, grad_norm=[1.0] * 20 + [math.nan] * 9)
    for rank in range(2):
        signals(made.state, rank, "gradients/own_nonfinite", (7, 8), (0.0, float(rank == 1)))
    (one,) = found(made)
    assert (one.step, one.names[0]) == (21, "loss")


def test_where_a_loss_became_nan_is_said_as_its_graph_showed_it() -> None:
    made = run(1, loss=[1.0] * 20 + [math.nan] * 9)
    made.state.signals.put_fact(0, "nonfinite/origin", 21, "input\tNet.stem.weight")
    (one,) = found(made)
    assert one.names == ("loss", "Net.stem.weight")
    assert "with the data" in one.summary


def test_the_operation_is_named_with_what_it_computed_and_the_line_that_calls_it() -> None:
    made = run(1, loss=[1.0] * 20 + [math.nan] * 9)
    made.state.signals.put_fact(0, "nonfinite/origin", 21, "Log\tNet.stem.weight\ta logarithm of 0")
    made.state.signals.put_fact(0, "nonfinite/places", 21, "/home/me/net.py\t12\tNorm.forward\tNet.mid.1\tcalls")
    (one,) = found(made)
    assert "a logarithm of 0, behind Net.stem.weight, in Net.mid.1" in one.summary
    assert one.names == ("loss", "Net.stem.weight", "Net.mid.1")
    assert [(place.frame.file, place.frame.line) for place in one.locations] == [("/home/me/net.py", 12)]
    assert one.causes[0].key == "operation"
    assert "in the only line" in one.causes[0].text


def test_what_the_model_made_of_finite_data_is_not_said_to_have_come_in_with_them() -> None:
    made = run(1, loss=[1.0] * 20 + [math.nan] * 9)
    made.state.signals.put_fact(0, "nonfinite/origin", 21, "made\tNet.stem.weight\t")
    made.state.signals.put_fact(0, "nonfinite/places", 21, "/home/me/net.py\t12\tNorm.forward\tNet.0\tcalls")
    (one,) = found(made)
    assert "the data of the batch are finite" in one.summary
    assert (one.causes[0].key, [place.frame.line for place in one.locations]) == ("operation", [12])


def test_a_loss_that_climbs_until_it_overflows_has_updates_that_are_too_large() -> None:
    climb = [2.4, 5.1, 4e3, 3e9, 8e24]
    (one,) = found(run(1, loss=climb + [math.inf] * 9))
    assert (one.step, one.causes[0].key) == (6, "runaway")
    assert "from 2.4 at step 1 to 8e+24 at step 5" in one.causes[0].evidence[0].what
    (one,) = found(run(1, loss=[2.0] * 5 + [math.nan] * 9, grad_norm=[*climb, math.inf] + [math.nan] * 8))
    assert one.causes[0].key == "runaway"


@pytest.mark.parametrize("before", [[2.4, 2.2, 2.3, 2.1, 9e5], [2.4, 5.1, 40.0, 300.0, 2e3]])
def test_one_jump_or_a_climb_of_few_orders_is_no_overflow(before: list[float]) -> None:
    (one,) = found(run(1, loss=before + [math.nan] * 9))
    assert one.causes[0].key == "loss"


def test_what_came_in_with_the_batch_has_not_run_away() -> None:
    made = run(1, loss=[2.4, 5.1, 4e3, 3e9, 8e24] + [math.nan] * 9)
    made.state.signals.put_fact(0, "nonfinite/origin", 6, "input\tNet.stem.weight\t")
    assert found(made)[0].causes[0].key == "data"


def test_an_operation_that_was_but_the_first_to_keep_one_is_not_said_to_have_made_it() -> None:
    made = run(1, loss=[1.0] * 20 + [math.nan] * 9)
    said = "first seen in the result of Softmax, which may have been given it"
    made.state.signals.put_fact(0, "nonfinite/origin", 21, f"Softmax\tNet.stem.weight\t{said}")
    made.state.signals.put_fact(0, "nonfinite/places", 21, "/home/me/net.py\t12\tNorm.forward\tNet.mid.1\tcalls")
    (one,) = found(made)
    assert f"it is {said}" in one.summary
    assert (one.causes[0].key, one.causes[0].confidence) == ("seen", 0.5)
    assert "in the only line" not in one.causes[0].text
    assert [place.frame.line for place in one.locations] == [12]


def test_where_backward_was_called_is_the_place_of_a_loss_with_a_bad_batch() -> None:
    made = run(1, loss=[1.0] * 20 + [math.nan] * 9)
    made.state.signals.put_fact(0, "nonfinite/origin", 21, "input\tNet.stem.weight\t")
    made.state.signals.put_fact(0, "nonfinite/places", 21, "/home/me/train.py\t40\tmain\t\tbackward")
    (one,) = found(made)
    assert [place.frame.line for place in one.locations] == [40]
    assert one.causes[0].key == "data"
    assert "computed" not in one.causes[0].text


@pytest.mark.parametrize(
    "loss", [[1.0] * 20 + [math.nan], [1.0, math.nan] * 12 + [1.0], [1.0] * 10 + [math.inf, 0.9, 0.8]]
)
def test_a_single_step_that_was_skipped_is_no_fault(loss: list[float]) -> None:
    assert found(run(loss=loss)) == []


# --- explosion


def test_a_norm_that_leaves_its_range_for_good_is_an_explosion_with_its_worst_parameter() -> None:
    levels = [10 * math.exp(max(0, step - 60) / 12) for step in range(160)]
    made = run(grad_norm=noisy(levels))
    norms(made, "Net.rec.weight", levels[::4])
    norms(made, "Net.out.weight", [2.0] * 40)
    (one,) = found(made)
    assert (one.kind, one.ranks, one.severity.value) == ("numerics.gradient_explosion", (0,), "critical")
    assert one.names[0] == "Net.rec.weight"
    assert one.step is not None
    assert 110 < one.step < 130


@pytest.mark.parametrize(("slope", "severity"), [(-0.05, "warning"), (0.05, "critical")])
def test_what_has_not_harmed_the_loss_yet_is_a_warning(slope: float, severity: str) -> None:
    levels = [10 * math.exp(max(0, step - 60) / 12) for step in range(160)]
    (one,) = found(run(grad_norm=noisy(levels), loss=[2.0 + slope * step for step in range(160)]))
    assert (one.kind, one.severity.value) == ("numerics.gradient_explosion", severity)


@pytest.mark.parametrize(
    "levels",
    [
        [5e4] * 200,  # a loss that is a sum
        [900.0] + [400.0 / (1 + s / 10) for s in range(200)],  # as large models begin
        [1.0 + s / 40 for s in range(200)],
        [0.01 * math.exp(s / 50) for s in range(200)],  # from a zero start, a hundredfold, and small
        [1.0] * 150 + [5e3, 2e3] + [1.0] * 20,  # a bad batch
        [3e3 * math.exp(-s / 20) + 1 for s in range(100)],
    ],
)
def test_norms_that_are_only_large_or_grow_little_or_come_back_are_no_explosion(levels: list[float]) -> None:
    assert found(run(grad_norm=noisy(levels))) == []


def test_a_norm_that_the_script_clips_is_no_explosion() -> None:
    levels = [10 * math.exp(max(0, step - 60) / 12) for step in range(160)]
    assert found(run(grad_norm=[1.0] * 160, clip_norm=levels)) == []
    assert found(run(grad_norm=levels, clip_norm=levels)) == []


def scaled_at(step: int, by: float, *, loss_by: float | None = None, places: Sequence[float] = (1.0,) * 6) -> Job:
    """From a step on the gradients are so many times as long, those of some parameters times another factor."""
    after = [1.0 if s < step else by for s in range(1, 161)]
    lost = [1.0 if s < step else (by if loss_by is None else loss_by) for s in range(1, 161)]
    made = run(grad_norm=noisy([3 * one for one in after]), loss=noisy(lost))
    for number, place in enumerate(places):
        levels = noisy([one if s < step else one * place for s, one in enumerate(after, 1)])[::8]
        norms(made, f"Net.{number}.weight", levels, every=8)
    return made


def test_a_factor_on_the_loss_is_the_cause_where_the_loss_and_all_gradients_grow_by_it_at_once() -> None:
    (one,) = found(scaled_at(81, 1e5))
    assert (one.kind, one.causes[0].key, one.step) == ("numerics.gradient_explosion", "scaled", 81)
    assert one.names[0] == "loss"
    assert "the gradients of all modules alike" in one.causes[0].text


@pytest.mark.parametrize("made", [
    scaled_at(81, 1e4, loss_by=1e8),  # weights that have run away, under a squared error
    scaled_at(81, 1e5, loss_by=1.0),
    scaled_at(81, 1e5, places=(1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1.0)),  # it grows on its way through the layers
])  # fmt: skip
def test_gradients_that_grow_by_other_factors_than_the_loss_are_not_put_down_to_a_factor_on_it(made: Job) -> None:
    (one,) = found(made)
    assert (one.kind, one.causes[0].key) == ("numerics.gradient_explosion", "growth")


def test_what_climbs_over_many_steps_is_no_factor_that_came_at_once() -> None:
    climbs = [math.exp(max(0, step - 60) / 3) for step in range(100)]
    made = run(grad_norm=climbs, loss=climbs)
    for number in range(6):
        signals(made.state, 0, f"grad_norm/Net.{number}.weight", range(1, 101), climbs)
    (one,) = found(made)
    assert one.causes[0].key == "growth"


def test_a_loss_that_is_large_from_the_first_step_on_is_the_cause_where_gradients_are_so_everywhere() -> None:
    levels = [2e4 * math.exp(max(0, step - 60) / 8) for step in range(160)]
    for place, key in ((1.0, "scaled"), (1e-3, "growth")):
        made = run(grad_norm=noisy(levels), loss=noisy([5e4] * 60 + [5e4 * math.exp(s / 40) for s in range(100)]))
        for number in range(6):
            norms(made, f"Net.{number}.weight", [one * (place if not number else 1) for one in levels[::4]])
        (one,) = [one for one in found(made) if one.kind == "numerics.gradient_explosion"]
        assert one.causes[0].key == key


def test_the_step_at_which_a_norm_left_its_range_is_one_of_those_between_two_samples() -> None:
    made = job(1)
    signals(made.state, 0, "grad_norm", range(1, 640, 16), [1.0] * 20 + [1e5] * 20)
    (one,) = found(made)
    assert one.step == 321
    assert "since a step from 306 to 321" in one.summary


# --- gradients that are never cleared


def test_gradients_that_are_never_cleared_and_grow_are_told() -> None:
    made = run(gradients__kept=[1.0] * 30, grad_norm=[20.0 * (1 + s) for s in range(31)])
    assert kinds(made) == [("training.gradient_accumulation", (0,), "warning")]


def test_gradients_that_add_up_and_are_still_small_have_not_exploded() -> None:
    made = run(gradients__kept=[1.0] * 80, grad_norm=[0.2 * (1 + s) for s in range(80)])
    assert [f.kind for f in found(made)] == ["training.gradient_accumulation"]


def test_once_their_norm_has_exploded_that_is_said_with_the_cause() -> None:
    made = run(gradients__kept=[1.0] * 80, grad_norm=[100.0 * (1 + s) for s in range(80)])
    both = found(made)
    assert [f.kind for f in both] == ["numerics.gradient_explosion", "training.gradient_accumulation"]
    assert both[0].causes[0].key == "kept"
    assert both[0].summary.startswith("rank 0 never clears the gradients (zero_grad)")
    assert "zero_grad" in both[0].names


@pytest.mark.parametrize(
    ("kept", "norm"),
    [
        ([0.0] * 30, [20.0 * (1 + s) for s in range(30)]),
        ([1.0] * 5 + [0.0] * 25, [20.0 * (1 + s) for s in range(30)]),
        ([1.0] * 30, [20.0] * 30),  # gradients that rest there: of parameters that are frozen by now
    ],
)
def test_gradients_that_are_cleared_or_do_not_add_up_are_not(kept: list[float], norm: list[float]) -> None:
    assert found(run(gradients__kept=kept, grad_norm=norm)) == []


def test_a_step_for_each_micro_batch_of_a_window_is_told_with_its_length() -> None:
    (one,) = found(run(gradients__kept=[0.0] * 12 + [0.0, 1.0, 1.0] * 8))
    assert (one.kind, one.causes[0].key, one.step) == ("training.gradient_accumulation", "between", 13)
    assert "3 times for each time" in one.summary


@pytest.mark.parametrize(
    "kept",
    [
        [0.0, 1.0, 1.0] * 5,  # too few times
        [0.0, 1.0, 1.0, 0.0, 1.0] * 8,  # at uneven distances
        [0.0, 1.0, 1.0] * 8 + [0.0] * 8,  # over
        [0.0] * 30,
    ],
)
def test_gradients_that_are_kept_now_and_then_are_not(kept: list[float]) -> None:
    assert found(run(gradients__kept=kept)) == []


def test_what_rests_there_between_the_steps_of_several_optimizers_is_not() -> None:
    made = run(gradients__kept=[0.0, 1.0, 1.0] * 12)
    for number in (0, 1):
        made.state.signals.put_fact(0, f"lr/{number}/group", 1, "0")
    assert found(made) == []


# --- flushed to zero


def zeros(**series: Sequence[float]) -> Job:
    """Half of the parameters have no gradient but zero."""
    told = {"parameters__owned": [12.0] * 12, "parameters__zero_gradient": [6.0] * 12, "grad_norm": [1.0] * 12}
    made = run(1, **told, **series)
    made.state.signals.put_fact(0, "parameters/zero_gradient", 12, "Net.depth.weight, Net.depth.bias")
    return made


@pytest.mark.parametrize(("half", "kind"), [
    ([1.0] * 6, "precision.underflow"),
    ([0.0, 1.0, 1.0, 0.0, 1.0, 1.0], "training.dead_parameters"),
    ([1.0] * 3, "training.dead_parameters"),
])  # fmt: skip
def test_gradients_of_zero_that_came_through_float16_are_laid_to_the_dtype(half: list[float], kind: str) -> None:
    made = zeros()
    signals(made.state, 0, "gradients/half", range(2, 2 + len(half)), half)
    (one,) = found(made)
    assert one.kind == kind
    signals(made.state, 0, "scaler/scale", [1, 2], [1024.0, 1024.0])
    assert found(made)[0].kind == "training.dead_parameters"  # a scaled loss would not have lost them
    assert ("have come through float16" in one.summary) == (kind == "precision.underflow")


def test_gradients_of_zero_in_float16_without_a_scaler_are_laid_to_the_dtype() -> None:
    (one,) = found(zeros(autocast__on=[2.0] * 12))
    assert (one.kind, one.causes[0].key) == ("precision.underflow", "flushed")
    assert one.names == ("Net.depth.weight", "Net.depth.bias", "float16", "grad_scaler")


@pytest.mark.parametrize(
    "more", [{}, {"autocast__on": [1.0] * 12}, {"autocast__on": [2.0] * 12, "scaler__scale": [1.0] * 12}]
)
def test_gradients_of_zero_elsewhere_are_not(more: dict[str, list[float]]) -> None:
    (one,) = found(zeros(**more))
    assert one.kind == "training.dead_parameters"


# --- all zero from some step on


def falls_silent(
    zeros: int = 8, loss: float = 0.3, more: dict[str, Sequence[float]] | None = None, had: int = 12
) -> Job:  # fmt: skip
    """Two layers that had gradients at some samples, and then have none."""
    made = run(1, **{"grad_norm": [1.0] * had, "loss": [loss] * (4 * (had + zeros)), **(more or {})})
    for name in ("Net.body.weight", "Net.head.weight"):
        norms(made, name, [*noisy([0.1] * had), *[0.0] * zeros])
    return made


@pytest.mark.parametrize(
    ("series", "kind", "key"),
    [({}, "numerics.gradient_vanishing", "silenced"),
     ({"autocast__on": [2.0] * 80}, "precision.underflow", "flushed"),
     ({"autocast__on": [2.0] * 80, "scaler__scale": [1024.0] * 48}, "precision.underflow", "flushed"),
     ({"autocast__on": [2.0] * 80, "scaler__scale": [1024.0] * 80}, "numerics.gradient_vanishing", "silenced"),
     ({"autocast__on": [1.0] * 80}, "numerics.gradient_vanishing", "silenced")],
)  # fmt: skip
def test_gradients_that_are_all_zero_since_a_step_are_told_with_what_may_be_why(
    series: dict[str, Sequence[float]], kind: str, key: str
) -> None:
    (one,) = found(falls_silent(more=series))
    assert (one.kind, one.causes[0].key, one.step) == (kind, key, 49)
    assert ("any more" in one.summary) == ("scaler__scale" in series and kind == "precision.underflow")


def test_a_loss_that_is_zero_at_once_takes_the_gradients_with_it() -> None:
    there = noisy([0.3] * 48)
    (one,) = found(falls_silent(more={"loss": [*there, *[0.0] * 32]}))
    assert (one.kind, one.causes[0].key, one.step) == ("numerics.gradient_vanishing", "silenced", 49)
    assert "the loss is too, which was" in one.summary
    comes_down = [0.3 * 0.8**step for step in range(48)]  # as far as it goes: learned
    for losses in (comes_down, [*there[:40], 0.0, *there[:7]], [*there[:47], 1e-3]):
        assert found(falls_silent(more={"loss": [*losses, *[0.0] * 32]})) == []


def test_gradients_that_are_zero_because_the_loss_is_or_only_for_a_while_or_in_parts_are_no_fault() -> None:
    assert found(falls_silent(loss=0.0)) == []  # a margin that is kept
    assert found(falls_silent(zeros=5)) == []
    assert found(falls_silent(had=7)) == []  # too few to know that they are there
    for levels in ([0.1] * 20, [*[0.1] * 6, 0.0, *[0.1] * 13]):
        goes_on = falls_silent()
        norms(goes_on, "Net.norm.weight", levels)
        assert found(goes_on) == []


# --- faded to nothing

SAMPLED = [1, 2, 3, 4, 5, 6, 7, 8, *range(16, 200, 8)]


def sampled(gradients: dict[str, list[float]]) -> Job:
    made = run(grad_norm=[1.0])
    for name, values in gradients.items():
        signals(made.state, 0, f"grad_norm/{name}", SAMPLED, values)
    return made


FADES = [1.0] * 8 + [0.1 * 0.2**n for n in range(5)] + [0.0] * (len(SAMPLED) - 13)
LEARNS = [1.0] * len(SAMPLED)


def test_layers_whose_gradients_have_faded_to_nothing_are_named() -> None:
    (one,) = found(sampled({"Net.pick.weight": FADES, "Net.head.weight": LEARNS}))
    assert (one.kind, one.names, one.causes[0].key) == ("numerics.gradient_vanishing", ("Net.pick.weight",), "faded")


def test_layers_of_which_only_a_bias_is_left_have_faded_too() -> None:
    made = sampled({"Net.pick.weight": FADES, "Net.head.weight": FADES, "Net.head.bias": LEARNS})
    described(made, Net__pick__weight=(8, 40), Net__head__weight=(6, 8), Net__head__bias=(6,))
    (one,) = found(made)
    assert one.names == ("Net.pick.weight", "Net.head.weight")


@pytest.mark.parametrize(
    "values",
    [
        [1.0] * 20 + [0.0] * (len(SAMPLED) - 20),  # switched off at once
        [1.0] * 8 + [0.01, 0.0, 0.02, 0.001] + [0.0] * (len(SAMPLED) - 12),  # it came back once
        FADES[: 13 + 3] + [1e-6] * (len(SAMPLED) - 16),
    ],
)
def test_gradients_that_were_switched_off_or_come_back_have_not_faded(values: list[float]) -> None:
    assert found(sampled({"Net.pick.weight": values, "Net.head.weight": LEARNS})) == []


def test_a_model_that_is_done_has_not_faded_in_parts() -> None:
    assert found(sampled({"Net.pick.weight": FADES, "Net.head.weight": FADES})) == []


# --- a branch that hardly moves


def branches(gradients: tuple[float, float], updates: tuple[float, float]) -> Job:
    made = run(grad_norm=[1.0] * 60)
    for name, gradient, update in zip(("inner.4", "edge.2"), gradients, updates, strict=True):
        for prefix, level in (("grad_norm", gradient), ("update_norm", update), ("param_norm", 3.0)):
            signals(made.state, 0, f"{prefix}/Net.{name}.weight", range(1, 60, 4), noisy([level] * 15))
    return described(made, Net__inner__4__weight=(1, 48), Net__edge__2__weight=(2, 32))


def test_a_branch_that_hardly_moves_beside_one_that_learns_is_named_first() -> None:
    (one,) = found(branches((0.5, 2e-5), (4e-3, 2e-7)))
    assert (one.kind, one.ranks) == ("numerics.gradient_imbalance", (0,))
    assert one.names == ("Net.edge.2.weight", "Net.inner.4.weight")
    assert "edge of Net hardly moves" in one.summary


@pytest.mark.parametrize(
    ("gradients", "updates"),
    [
        ((0.5, 2e-5), (4e-3, 3e-3)),  # the optimizer makes up for it
        ((0.5, 0.1), (4e-3, 2e-7)),  # a rate of its own, as is meant
        ((2e-5, 2e-5), (2e-7, 2e-7)),  # both stand still: another matter
        ((0.5, 2e-5), (0.3, 3e-4)),  # it gets somewhere in a thousand steps
        ((0.5, 2e-5), (9e-5, 1.5e-5)),  # the other is hardly faster
    ],
)
def test_branches_that_both_move_or_are_held_back_on_purpose_are_not(
    gradients: tuple[float, float], updates: tuple[float, float]
) -> None:
    assert [f.kind for f in found(branches(gradients, updates)) if f.kind == "numerics.gradient_imbalance"] == []


# --- vanishing


def deep(levels: Sequence[float], updates: float = 1e-9, names: str = "Net.layers.{}.weight") -> Job:
    made = run(grad_norm=[1.0] * 60)
    for number, level in enumerate(levels):
        name = names.format(number)
        norms(made, name, [level] * 12)
        signals(made.state, 0, f"update_norm/{name}", range(2, 40, 8), [updates if level < 1e-6 else 1e-2] * 5)
        signals(made.state, 0, f"param_norm/{name}", range(2, 40, 8), [5.0] * 5)
    return described(made, **{names.format(n).replace(".", "__"): (8, 8) for n in range(len(levels))})


def test_gradients_that_do_not_reach_the_first_layers_vanish() -> None:
    (one,) = found(deep([1e-13, 1e-11, 1e-9, 1e-6, 1e-3, 0.1]))
    assert (one.kind, one.severity.value) == ("numerics.gradient_vanishing", "critical")
    assert one.names == ("Net.layers.0.weight", "Net.layers.1.weight", "Net.layers.2.weight")


def test_gradients_too_small_for_float32_fade_into_those_that_are_told() -> None:
    (one,) = found(deep([0.0, 0.0, 0.0, 1e-13, 1e-11, 1e-6, 1e-3, 0.1]))
    assert one.kind == "numerics.gradient_vanishing"
    assert one.names[:2] == ("Net.layers.0.weight", "Net.layers.1.weight")
    assert len(one.names) == 5


@pytest.mark.parametrize(
    "levels",
    [
        [0.0, 0.0, 1e-12, 0.1, 0.1, 0.1],  # cut off, before one that fades
        [1e-3, 1e-3, 1e-2, 0.1, 1.0],  # as embeddings and first layers of transformers
        [1e-12] * 6,  # converged: all alike
        [0.0, 0.0, 0.1, 0.1, 0.1],  # no gradient at all, which another rule speaks of
        [0.1, 1e-12, 1e-12, 0.1, 0.1],  # in the middle: branches that begin at zero
        [1e-12, 0.1, 0.1, 0.1],  # one alone
    ],
)
def test_layers_that_are_only_apart_do_not_vanish(levels: list[float]) -> None:
    assert found(deep(levels)) == []


def shrinking(levels: Sequence[float], turned: float) -> Job:
    """As `deep`, with a decay of 1e-4 at each step; what steps change is so many times what that makes them smaller."""
    made = run(grad_norm=[1.0] * 60)
    steps = range(2, 40, 4)
    for number, level in enumerate(levels):
        name = f"Net.layers.{number}.weight"
        norms(made, name, [level] * 12)
        held = [5.0 * (1 - 1e-4) ** step for step in steps]
        signals(made.state, 0, f"update_norm/{name}", steps, [turned * 1e-4 * norm for norm in held])
        signals(made.state, 0, f"param_norm/{name}", steps, held)
    return described(made, **{f"Net__layers__{number}__weight": (8, 8) for number in range(len(levels))})


@pytest.mark.parametrize(("turned", "told"), [(1.0, True), (5.0, False)])
def test_first_layers_that_decay_alone_moves_do_not_train(turned: float, told: bool) -> None:
    kinds = [one.kind for one in found(shrinking([1e-13, 1e-11, 1e-9, 1e-6, 1e-3, 0.1], turned))]
    assert kinds == ["numerics.gradient_vanishing"] * told


def test_first_layers_that_an_adaptive_optimizer_moves_all_the_same_do_not_vanish() -> None:
    assert found(deep([1e-7, 1e-7, 1e-4, 0.1], updates=1e-3)) == []


@pytest.mark.parametrize("names", ["Net.moe.experts.{}.weight", "Net.q.lora_A.{}.weight"])
def test_experts_without_tokens_and_adapters_that_begin_at_zero_do_not_vanish(names: str) -> None:
    assert found(deep([1e-13, 1e-11, 1e-9, 0.1], names=names)) == []


# --- imbalance


def heads(
    first: float, second: float, names: tuple[str, str] = ("depth_head", "seg_head"), *, clipped: bool = False
) -> Job:
    made = run(grad_norm=[1.0] * 60 if clipped else noisy([1.0] * 60))
    norms(made, "Net.trunk.0.weight", noisy([1.0] * 14))
    for name, level in zip(names, (first, second), strict=True):
        norms(made, f"Net.{name}.weight", noisy([level] * 14))
    return described(
        made,
        Net__trunk__0__weight=(96, 40),
        **{f"Net__{n.replace('.', '__')}__weight": (8 - i, 96) for i, n in enumerate(names)},
    )


def test_heads_whose_gradients_are_far_apart_are_told_with_the_small_one_first() -> None:
    (one,) = found(heads(60.0, 0.2))
    assert (one.kind, one.ranks) == ("numerics.gradient_imbalance", (0,))
    assert one.names == ("Net.seg_head.weight", "Net.depth_head.weight")


def test_heads_in_a_container_and_heads_of_several_layers_are_found_too() -> None:
    (one,) = found(heads(60.0, 0.2, ("heads.depth", "heads.seg")))
    assert one.names == ("Net.heads.seg.weight", "Net.heads.depth.weight")
    made = run(grad_norm=[1.0] * 60)
    for name, level in (("trunk", 1.0), ("box.0", 50.0), ("box.2", 50.0), ("tag.0", 0.1), ("tag.2", 0.1)):
        norms(made, f"Net.{name}.weight", noisy([level] * 14))
    shapes = {"trunk": (64, 30), "box__0": (32, 64), "box__2": (4, 32), "tag__0": (32, 64), "tag__2": (9, 32)}
    (one,) = found(described(made, **{f"Net__{name}__weight": shape for name, shape in shapes.items()}))
    assert one.names == ("Net.tag.2.weight", "Net.box.2.weight")


def test_heads_that_are_near_each_other_and_those_of_actors_and_critics_are_not() -> None:
    assert found(heads(10.0, 0.5)) == []
    assert found(heads(60.0, 0.2, ("value", "policy"))) == []


@pytest.mark.parametrize(("clipped", "small", "said"), [(True, 0.02, True), (False, 0.02, False), (True, 0.2, False)])
def test_an_actor_that_one_clip_leaves_with_next_to_nothing(clipped: bool, small: float, said: bool) -> None:
    made = heads(60.0, small, ("value", "policy"), clipped=clipped)
    assert [f.names for f in found(made)] == ([("Net.policy.weight", "Net.value.weight")] if said else [])


def test_a_recurrent_cell_before_its_output_is_no_head() -> None:
    made = run(grad_norm=[1.0] * 60)
    for name, level in (("rnn.weight_ih_l0", 1e-3), ("rnn.weight_hh_l0", 1e-3), ("out.weight", 1.0)):
        norms(made, f"Net.{name}", noisy([level] * 14))
    described(made, Net__rnn__weight_ih_l0=(192, 8), Net__rnn__weight_hh_l0=(192, 48), Net__out__weight=(8, 48))
    assert found(made) == []


def test_layers_that_follow_each_other_are_no_heads() -> None:
    made = run(grad_norm=[1.0] * 60)
    for name, level in (("Net.a.weight", 1.0), ("Net.b.weight", 1e-3), ("Net.c.weight", 1.0)):
        norms(made, name, noisy([level] * 14))
    described(made, Net__a__weight=(96, 96), Net__b__weight=(96, 96), Net__c__weight=(5, 96))
    assert found(made) == []


# --- dead parameters


def counts(**what: Sequence[float]) -> Job:
    made = job(1)
    usual: dict[str, Sequence[float]] = {"owned": [10.0] * 5, "matrices": [5.0] * 5, "elements_trainable": [1.0] * 5}
    for name, values in {**usual, **what}.items():
        signals(made.state, 0, f"parameters/{name}", (2, 8, 16, 24, 32)[-len(values) :], values)
    return made


def test_what_was_replaced_after_the_optimizer_was_made_is_dead() -> None:
    made = counts(unowned=[0, 2, 2, 2, 2], strangers=[2] * 5, strangers_idle=[2] * 5)
    made.state.signals.put_fact(0, "parameters/unowned", 32, "Net.fc.weight, Net.fc.bias")
    (one,) = found(made)
    assert (one.kind, one.severity.value, one.step) == ("training.dead_parameters", "critical", 8)
    assert one.names == ("Net.fc.weight", "Net.fc.bias", "optimizer")


@pytest.mark.parametrize(("fed", "bare", "said"), [(3, 4, "replaced"), (0, 4, "cut off"), (3, 0, "")])
def test_an_optimizer_of_another_copy_than_the_one_that_is_trained_with(fed: int, bare: int, said: str) -> None:
    none = [float(bare > 0)] * 5
    made = counts(owned=[4] * 5, bare=[bare] * 5, copies_fed=[fed] * 5, without_gradient=[bare] * 5,
                  elements_without_gradient=none)  # fmt: skip
    made.state.signals.put_fact(0, "parameters/without_gradient", 32, "Net.fc.weight, Net.fc.bias")
    assert [f.causes[0].key for f in found(made) if f.kind == "training.dead_parameters"] == [said] * bool(said)


def test_gradients_that_are_cleared_before_the_step_are_told_as_that() -> None:
    silent: dict[str, Sequence[float]] = {
        "owned": [4] * 5,
        "bare": [4] * 5,
        "without_gradient": [4] * 5,
        "elements_without_gradient": [1.0] * 5,
    }
    (one,) = found(counts(**silent, cleared=[1] * 5))
    assert (one.kind, one.severity.value) == ("training.gradient_accumulation", "critical")
    assert (one.causes[0].key, one.names[0]) == ("cleared", "zero_grad")
    assert [f.kind for f in found(counts(**silent, cleared=[1, 1, 1, 0, 1]))] == ["training.dead_parameters"]


@pytest.mark.parametrize(("router", "count", "said"), [
    (3e-9, 10, True), (1e-4, 10, False), (0.0, 10, False), (0.0, 14, True),
])  # fmt: skip
def test_a_router_with_nothing_but_rounding_for_a_gradient_never_learns(router: float, count: int, said: bool) -> None:
    made = counts()
    for name, level in (("Net.in.weight", 0.1), ("Net.moe.router.weight", router), ("Net.out.weight", 0.2)):
        norms(made, name, noisy([level] * count))
    described(made, Net__in__weight=(8, 8), Net__moe__router__weight=(4, 8), Net__out__weight=(4, 8))
    keys = [f.causes[0].key for f in found(made) if f.kind == "training.dead_parameters"]
    assert keys == (["unlearned router"] if said else [])


def test_parameters_behind_owned_ones_that_no_optimizer_has_were_forgotten() -> None:
    made = counts(unowned=[0, 2, 2, 2, 2], unowned_behind=[2] * 5, strangers=[0] * 5, strangers_idle=[0] * 5)
    made.state.signals.put_fact(0, "parameters/unowned", 32, "Net.decoder.weight")
    (one,) = found(made)
    assert (one.causes[0].key, one.severity.value, one.names) == ("forgotten", "warning", ("Net.decoder.weight",))


@pytest.mark.parametrize(("norm", "loss", "loaded", "told"), [
    (3e3, 9.0, "not known", "critical"), (3e3, 1.0, "not known", ""), (3e3, 9.0, "", ""), (1e6, 9.0, "", ""),
    (1e6, 1.0, "not known", "warning"),  # clipped or not, that is no usual norm
    (1e6, 1.8, "not known", "critical"),  # far above what the loss had come down to
])  # fmt: skip
def test_a_norm_in_logs_that_leaves_its_range_counts_by_how_far_and_by_what_it_does_to_the_loss(
    norm: float, loss: float, loaded: str, told: str
) -> None:
    """It may be the one before clipping, which alone is no harm."""
    norms_ = [*noisy([1.0] * 60), *[norm] * 40]
    made = run(1, grad_norm=norms_, clip_norm=norms_, loss=[*noisy([1.0] * 60, 0.05), *noisy([loss] * 40, 0.05)])
    if loaded:
        made.state.signals.put_fact(0, "loaded", 0, loaded)
    severities = [one.severity.value for one in found(made) if one.kind == "numerics.gradient_explosion"]
    assert severities == ([told] if told else [])


def test_parameters_that_another_rank_steps_were_not_forgotten() -> None:
    made = counts(unowned=[0, 2, 2, 2, 2], unowned_behind=[2] * 5, strangers=[0] * 5, strangers_idle=[0] * 5)
    made.state.signals.put_fact(0, "parameters/unowned", 32, "Net.decoder.weight")
    made.state.tensors.apply(ledgers({TensorInfo("Net.decoder.weight"): same}, [1]), 2)
    assert found(made) == []


@pytest.mark.parametrize(("fresh", "severity"), [(1, "warning"), (0, "info")])
def test_parameters_in_a_plain_container_were_to_train_where_they_are_new(fresh: int, severity: str) -> None:
    made = counts(unlisted=[0, 2, 2, 2, 2], unlisted_fresh=[fresh] * 4, unowned=[2] * 5)
    made.state.signals.put_fact(0, "parameters/unlisted", 32, "Net.parts[0].weight, Net.parts[0].bias")
    (one,) = found(made)
    assert (one.causes[0].key, one.severity.value, one.names[0]) == ("unlisted", severity, "Net.parts[0].weight")


@pytest.mark.parametrize(("beside", "severity"), [(1, "warning"), (0, "info")])
def test_a_few_in_front_of_all_others_may_be_meant_to_rest_unless_their_module_trains(
    beside: int, severity: str
) -> None:
    made = counts(unowned=[0, 2, 2, 2, 2], unowned_behind=[0] * 5, unowned_beside=[beside] * 5)
    made.state.signals.put_fact(0, "parameters/unowned", 32, "Net.pos, Net.stem.weight")
    assert [(f.causes[0].key, f.severity.value) for f in found(made)] == [("forgotten", severity)]


def test_weights_at_a_rate_of_0_are_no_dead_ones_of_their_own() -> None:
    made = counts()
    for name, update in (("Net.a.weight", 0.0), ("Net.b.weight", 0.1)):
        norms(made, name, [0.5] * 10)
        signals(made.state, 0, f"update_norm/{name}", range(2, 40, 4), [update] * 10)
    tensors = {TensorInfo(n, shape=(4, 4), dtype="float32"): same for n in ("Net.a.weight", "Net.b.weight")}
    made.state.tensors.apply(ledgers(tensors, (0,), (0,)), 1)
    assert [f.kind for f in found(made)] == ["training.dead_parameters"]
    signals(made.state, 0, "lr/0", range(1, 40), [0.0] * 39)
    made.state.signals.put_fact(0, "lr/0/optimizer", 1, "Adam")
    assert [f.kind for f in found(made)] == ["training.lr_fault"]


@pytest.mark.parametrize(
    "what",
    [
        {"unowned": [0, 8, 8, 8, 8], "unowned_behind": [0] * 5},  # the head alone is trained
        {"unowned": [0, 3, 0, 3, 3], "unowned_behind": [0] * 5},
        {
            "unowned": [0, 8, 8, 8, 8],
            "unowned_behind": [4] * 5,
            "strangers": [8] * 5,
            "strangers_idle": [0] * 5,
        },  # masters
        {"strangers": [1] * 5, "strangers_idle": [1] * 5, "unowned": [0] * 5},  # a parameter outside of modules
        {"without_gradient": [2] * 5, "elements_without_gradient": [0.02] * 5},  # a pooler that is not used
        {"without_gradient": [4, 4, 4, 0, 0], "elements_without_gradient": [0.5, 0.5, 0.5, 0, 0]},  # used later
        {"zero_gradient": [1] * 5, "elements_zero_gradient": [0.1] * 5},
        {
            "random_output": [1],
            "matrices": [4] * 5,
            "elements_trainable": [0.01] * 5,
        },  # adapters, without a loss to see
    ],
)
def test_parameters_that_stand_still_as_meant_are_not_dead(what: dict[str, Sequence[float]]) -> None:
    assert found(counts(**what)) == []


def test_one_parameter_that_is_much_of_the_model_is_dead_where_its_gradient_is_always_zero() -> None:
    (one,) = found(counts(zero_gradient=[1] * 5, elements_zero_gradient=[0.4] * 5))
    assert (one.kind, one.causes[0].key) == ("training.dead_parameters", "zero")


@pytest.mark.parametrize(("spread", "dead"), [([0.3, 0.0, 0.0, 0.0], []), ([0.3, 0.2, 0.3, 0.2], ["zero"])])
def test_gradients_that_are_zero_as_the_rewards_are_equal_say_nothing_of_the_parameters(
    spread: list[float], dead: list[str]
) -> None:
    made = counts(zero_gradient=[10] * 5)
    signals(made.state, 0, "logged/reward_std", range(1, 5), spread)
    assert [one.causes[0].key for one in found(made)] == dead


def test_a_random_frozen_output_is_a_mistake_where_no_matrix_trains() -> None:
    made = counts(random_output=[1], matrices=[0] * 5, elements_trainable=[0.1] * 5)
    made.state.signals.put_fact(0, "parameters/random_output", 8, "Net._fc.weight")
    (one,) = found(made)
    assert (one.causes[0].key, one.names[0]) == ("frozen", "Net._fc.weight")


@pytest.mark.parametrize(("name", "loss", "dead"), [
    ("Net.pool.weight", [3.0] * 80, True),
    ("Net.pool.weight", [3.0 * 0.98**s for s in range(80)], False),
    ("Net.q_proj.lora_A", [3.0] * 80, False),
])  # fmt: skip
def test_elsewhere_it_is_one_only_if_nothing_is_learned_and_no_adapter_is_trained(
    name: str, loss: list[float], dead: bool
) -> None:
    made = counts(random_output=[1], matrices=[2] * 5, elements_trainable=[0.02] * 5)
    made.state.signals.put_fact(0, "parameters/random_output", 8, "Net.head.weight")
    signals(made.state, 0, "loss", range(1, 81), loss)
    norms(made, name, [0.1] * 10)
    assert bool(found(made)) == dead


def test_a_large_part_without_any_gradient_was_cut_off() -> None:
    made = counts(without_gradient=[4] * 5, elements_without_gradient=[0.6] * 5)
    made.state.signals.put_fact(0, "parameters/without_gradient", 32, "Net.encoder.weight")
    assert [f.causes[0].key for f in found(made)] == ["cut off"]
    small = counts(without_gradient=[6] * 5, elements_without_gradient=[0.1] * 5)
    assert [f.causes[0].key for f in found(small)] == ["cut off"]
    made.state.signals.put_fact(0, "parameters/without_gradient", 32, "Net.experts.3.weight")
    assert found(made) == []


@pytest.mark.parametrize(("silent", "last", "trained", "said"), [
    (4, 192, "Net.moe.experts.0.weight", ["unused experts"]),
    (2, 192, "Net.moe.experts.0.weight", []),  # most are used
    (4, 64, "Net.moe.experts.0.weight", []),  # they may be chosen yet
    (4, 192, "Net.head.weight", []),  # none is: what the experts are for is not known
])  # fmt: skip
def test_experts_that_are_never_chosen_are_told_where_they_are_most(
    silent: int, last: int, trained: str, said: list[str]
) -> None:
    made = described(counts(), **{f"Net__moe__experts__{n}__weight": (4, 4) for n in range(6)})
    signals(made.state, 0, "parameters/without_gradient", [2, 8, 16, 24, 32, 48, last], [silent] * 7)
    made.state.signals.put_fact(0, "parameters/without_gradient", last, "Net.moe.experts.1.weight")
    norms(made, trained, [0.5] * 10)
    assert [f.causes[0].key for f in found(made)] == said


@pytest.mark.parametrize(("silent", "trained", "said"), [
    ("Net.moe.router.weight", "Net.moe.experts.0.weight", ["unrouted"]),
    ("Net.moe.gate.weight", "Net.moe.experts.0.gate_proj.weight", ["unrouted"]),
    ("Net.mlp.gate_proj.weight", "Net.moe.experts.0.weight", []),  # no router: half of a gated layer
    ("Net.moe.experts.1.gate.weight", "Net.moe.experts.0.weight", []),  # an expert without a token
    ("Net.highway.gate.weight", "Net.highway.weight", []),  # nothing to choose of
])  # fmt: skip
def test_a_router_without_a_gradient_is_cut_off_however_small_it_is(silent: str, trained: str, said: list[str]) -> None:
    made = counts(without_gradient=[1] * 5, elements_without_gradient=[0.01] * 5)
    made.state.signals.put_fact(0, "parameters/without_gradient", 32, silent)
    norms(made, trained, [0.5] * 10)
    assert [f.causes[0].key for f in found(made)] == said


def test_adapters_may_begin_at_zero_and_not_stay_there() -> None:
    for times, said in ((5, []), (7, []), (8, ["zero"])):
        made = counts(zero_gradient=[6] * 5)
        signals(made.state, 0, "parameters/zero_gradient", range(40, 40 + 8 * (times - 5), 8), [6] * (times - 5))
        made.state.signals.put_fact(0, "parameters/zero_gradient", 64, "Net.adapter.down.weight, Net.adapter.up.weight")
        assert [f.causes[0].key for f in found(made)] == said


def test_weights_that_no_step_moves_are_dead_unless_their_precision_cannot_show_it() -> None:
    for dtype, dead in (("float32", True), ("bfloat16", False)):
        made = counts()
        for name, update in (("Net.a.weight", 0.0), ("Net.b.weight", 0.1)):
            norms(made, name, [0.5] * 10)
            signals(made.state, 0, f"update_norm/{name}", range(2, 40, 4), [update] * 10)
        tensors = {TensorInfo(n, shape=(4, 4), dtype=dtype): same for n in ("Net.a.weight", "Net.b.weight")}
        made.state.tensors.apply(ledgers(tensors, (0,), (0,)), 1)
        assert [f.names for f in found(made)] == ([("Net.a.weight",)] if dead else [])


@pytest.mark.parametrize(("factor", "dead"), [(0.9, True), (0.01, False)])
def test_weights_whose_gradients_have_faded_with_what_they_learned_are_not_dead(factor: float, dead: bool) -> None:
    made = counts()
    for name, update in (("Net.a.weight", 0.0), ("Net.b.weight", 0.1)):
        norms(made, name, [0.5 * factor**step for step in range(10)])
        signals(made.state, 0, f"update_norm/{name}", range(2, 40, 4), [update] * 10)
    tensors = {TensorInfo(n, shape=(4, 4), dtype="float32"): same for n in ("Net.a.weight", "Net.b.weight")}
    made.state.tensors.apply(ledgers(tensors, (0,), (0,)), 1)
    assert bool(found(made)) == dead


# --- learning rates


def rate(values: Sequence[float], scheduler: str = "", loss: Sequence[float] | None = None) -> Job:
    """Told when it changes and at each 16th step, as ranks do."""
    made = job(1)
    told = [(s, v) for s, v in enumerate(values, 1) if s == 1 or s % 16 == 0 or v != values[s - 2]]
    signals(made.state, 0, "lr/0", [s for s, _ in told], [v for _, v in told])
    signals(made.state, 0, "loss", range(1, len(values) + 1), loss or [1.0] * len(values))
    made.state.signals.put_fact(0, "lr/0/optimizer", 1, "Adam")
    if scheduler:
        made.state.signals.put_fact(0, "lr/scheduler", 1, scheduler)
    return made


def cosine(steps: int, warmup: int = 0, peak: float = 1e-3) -> list[float]:
    up = [peak * (s + 1) / warmup for s in range(warmup)]
    return up + [0.5 * peak * (1 + math.cos(math.pi * s / steps)) for s in range(steps)]


def test_a_schedule_that_is_over_long_before_the_run_is_told_with_the_step() -> None:
    (one,) = found(rate([2e-3 * 0.2 ** (s // 10) for s in range(100)], "StepLR step_size=10 gamma=0.2"))
    assert (one.kind, one.severity.value, one.step) == ("training.lr_fault", "critical", 61)
    assert one.names == ("lr", "learning rate")


def test_a_rate_below_zero_goes_uphill_and_explains_what_explodes() -> None:
    made = rate([1e-3 - 1e-5 * s for s in range(200)])
    norms(made, "Net.a.weight", [1.0] * 20 + [10.0**n for n in range(30)])
    signals(made.state, 0, "grad_norm", range(1, 200), [1.0] * 100 + [1.2**n for n in range(99)])
    assert [(f.kind, f.causes[0].key) for f in detect(made.report().state)] == [("training.lr_fault", "negative")]


def test_one_that_has_reached_a_hundredth_for_most_of_the_run_is_told_more_mildly() -> None:
    values = [1e-2 if s < 20 else 1e-3 if s < 40 else 1e-4 for s in range(140)]
    (one,) = found(rate(values, "MultiStepLR milestones=[20, 40] gamma=0.1"))
    assert (one.severity.value, one.step) == ("warning", 41)


def test_a_rate_that_never_leaves_zero_is_told() -> None:
    assert kinds(rate([0.0] * 40)) == [("training.lr_fault", (0,), "critical")]


@pytest.mark.parametrize(
    ("samples", "by", "said"),
    [(400, 0.0, True), (400, 0.5, False), (SEEN - 1, 0.0, False), (20, 0.5, False)],
)
def test_a_rate_that_a_log_writes_as_zero_is_one_where_the_loss_has_not_fallen(
    samples: int, by: float, said: bool
) -> None:
    made = job(1)
    signals(made.state, 0, "lr/0", range(1, samples + 1), [0.0] * samples)
    levels = [2.0 - by * s / samples for s in range(samples)]
    signals(made.state, 0, "loss", range(1, samples + 1), noisy(levels, 0.02))
    assert [f.kind for f in found(made) if f.kind == "training.lr_fault"] == ["training.lr_fault"] * said


def test_a_cosine_that_swings_is_told_unless_restarts_are_meant() -> None:
    values = [1e-3 * (1 + math.cos(math.pi * s / 10)) / 2 for s in range(90)]
    (one,) = found(rate(values, "CosineAnnealingLR T_max=10 eta_min=0"))
    assert (one.causes[0].key, one.severity.value) == ("swings", "warning")
    assert found(rate(values, "CosineAnnealingWarmRestarts T_0=10")) == []


@pytest.mark.parametrize(("steps", "length", "said"), [(240, 200, False), (250, 200, True), (250, 250, False)])
def test_a_cosine_that_is_stepped_beyond_its_end_goes_up_again(steps: int, length: int, said: bool) -> None:
    values = [1e-3 * (1 + math.cos(math.pi * s / length)) / 2 for s in range(steps)]
    made = rate(values, f"CosineAnnealingLR T_max={length} eta_min=0")
    signals(made.state, 0, "lr/scheduled", [steps - 1], [steps - 1])
    assert [(f.causes[0].key, f.severity.value, f.step) for f in found(made)] == (
        [("swings", "warning", length + 1)] if said else []
    )


@pytest.mark.parametrize(("values", "scheduler", "said"), [
    ([1e-3 * (s + 1) / 40 for s in range(120)], "LambdaLR", True),
    ([1e-3 * (s + 1) / 40 for s in range(70)], "LambdaLR", False),  # not known yet
    ([1e-3 * min(1.0, (s + 1) / 40) for s in range(120)], "LambdaLR", False),
    ([1e-3 * min(4.0, 1 + 3 * s / 40) for s in range(120)], "LambdaLR", False),  # up to that of several ranks
    ([1e-3 * min(2.5, (s + 1) / 40) for s in range(240)], "LambdaLR", False),  # above it, and no further
    ([1e-3 * (0.8 + s / 40) for s in range(120)], "LambdaLR", False),  # no warm-up
    ([1e-3 * (s + 1 - 9 * (s == 100)) / 40 for s in range(120)], "LambdaLR", False),  # by turns
    ([1e-3 * (s + 1) / 40 for s in range(120)], "OneCycleLR total_steps=200", False),
])  # fmt: skip
def test_a_warm_up_that_has_no_end(values: list[float], scheduler: str, said: bool) -> None:
    made = rate(values, scheduler)
    signals(made.state, 0, "lr/initial", [len(values) - 1], [1e-3])
    assert [(f.causes[0].key, f.severity.value, f.step) for f in found(made)] == (
        [("climbs", "warning", 40)] if said else []
    )
    made.state.world_size = 4  # up to which it may rise
    assert found(made) == []


@pytest.mark.parametrize(("others", "groups", "said"), [
    ([[1e-3] * 200], "0 1", True),
    ([[1e-3] * 200, [1e-3] * 200], "0 1 2", True),
    ([[1e-3] * 200], "0 0", False),  # another optimizer's
    ([[1e-4] * 200], "0 1", False),  # meant to be another
    ([cosine(200)], "0 1", False),
])  # fmt: skip
def test_a_schedule_that_is_written_into_the_first_group_alone(
    others: list[list[float]], groups: str, said: bool
) -> None:
    made = rate([1e-3 * (s + 1) / 20 for s in range(20)] + cosine(200)[:160])
    for number, values in enumerate(others, 1):
        told = [s for s in range(1, 181) if s == 1 or s % 16 == 0]
        signals(made.state, 0, f"lr/{number}", told, [values[s] for s in told])
    for number, group in enumerate(groups.split()):
        made.state.signals.put_fact(0, f"lr/{number}/group", 1, group)
    assert [(f.causes[0].key, f.severity.value) for f in found(made)] == ([("first", "warning")] if said else [])
    made.state.signals.put_fact(0, "lr/scheduler", 1, "LambdaLR")  # one of torch's has a rate for each group
    assert found(made) == []


def test_a_rate_far_too_high_for_adam_is_told_where_the_loss_does_not_fall() -> None:
    assert [f.causes[0].key for f in found(rate([0.5] * 60, loss=[2.0] * 60))] == ["high"]
    assert found(rate([0.5] * 60, loss=[2.0 / (1 + s) for s in range(60)])) == []


@pytest.mark.parametrize(
    "values",
    [
        cosine(200),
        cosine(190, warmup=40),
        cosine(3000)[:2999],
        [1e-3 * (1 - s / 200) for s in range(200)],
        [1e-3] * 300,
        [0.0] + [1e-3 * s / 100 for s in range(1, 100)],  # warming up, from zero
        [1e-3 if s < 100 else 1e-4 if s < 200 else 1e-5 for s in range(290)],
        [1e-3 * 0.97**s for s in range(150)],
        [1e-6] * 100 + [1e-3] * 100,
    ],
)  # fmt: skip
def test_schedules_as_people_use_them_are_in_order_at_each_moment(values: list[float]) -> None:
    for until in range(1, len(values) + 1, max(len(values) // 40, 1)):
        assert found(rate(values[:until])) == [], until


def test_a_group_that_stands_at_zero_beside_others_is_frozen_on_purpose() -> None:
    made = rate([1e-3] * 60)
    signals(made.state, 0, "lr/1", range(1, 61, 16), [0.0] * 4)
    assert found(made) == []


@pytest.mark.parametrize(
    ("values", "times", "said"),
    [
        ([0.01] * 600, 0, "stepped not once in 600"),
        ([0.0002] * 600, 2, "stepped 2 times in 600 training steps, and the learning rate is still 0.0002 of 0.01"),
        ([0.01] * 600, 2, ""),  # once an epoch
        ([0.01] * 300, 0, ""),  # not known yet
        ([0.0002] * 110, 5, "stepped 5 times in 110 training steps, and the learning rate is still 0.0002 of 0.01"),
        ([0.0002] * 110, 4, ""),
        ([0.0002] * 99, 5, ""),
        ([step / 1e5 for step in range(1, 601)], 590, ""),
    ],
)
def test_a_scheduler_that_is_hardly_stepped_is_worth_knowing(values: list[float], times: int, said: str) -> None:
    made = rate(values, "CosineAnnealingLR T_max=50")
    signals(made.state, 0, "lr/scheduled", [len(values) - 1], [times])
    signals(made.state, 0, "lr/initial", [len(values) - 1], [0.01])
    assert [(f.severity.value, f.causes[0].key) for f in found(made)] == ([("info", "unstepped")] if said else [])
    assert all(said in f.summary for f in found(made))


@pytest.mark.parametrize(("parts", "lost"), [([0.75] * 12, True), ([0.75] * 8, False), ([0.75, 0.0] * 8, False)])
def test_gradients_that_are_cleared_between_micro_batches_are_told(parts: list[float], lost: bool) -> None:
    made = run(2, gradients__discarded=parts)
    assert [(f.kind, f.ranks, f.causes[0].key) for f in found(made)] == (
        [("training.gradient_accumulation", (0, 1), "discarded")] if lost else []
    )


# --- places


def test_the_call_of_backward_is_the_place_of_gradients_that_explode_and_the_scheduler_that_of_its_rates() -> None:
    levels = [10 * math.exp(max(0, step - 60) / 12) for step in range(160)]
    made = run(grad_norm=noisy(levels))
    made.ranks[0].detail = made.ranks[0].detail.with_(backward_site=Frame("fit", "/home/me/train.py", 31))
    (one,) = [finding for finding in detect(made.report().state) if finding.kind == "numerics.gradient_explosion"]
    assert [(place.rank, place.frame.line) for place in one.locations] == [(0, 31)]


def test_a_rate_that_is_gone_too_early_is_placed_where_its_scheduler_was_made() -> None:
    made = run(loss=[1.0] * 200, lr__0=[0.1 * 0.9**step for step in range(200)])
    made.state.signals.put_fact(0, "lr/scheduler/site", 1, "/home/me/train.py\t12\tbuild")
    found = [finding for finding in detect(made.report().state) if finding.kind == "training.lr_fault"]
    assert [place.frame.function for finding in found for place in finding.locations] == ["build"]


def replaced(rate: Sequence[float], stepped: Sequence[float]) -> Job:
    """Another optimizer from step 81 on; each 64 steps it is told how often the first one's scheduler was stepped."""
    made = run(grad_norm=[0.5] * 240, lr__0=list(np.linspace(5e-3, 4.2e-3, 80)))
    signals(made.state, 0, "lr/1", range(81, 81 + 16 * len(rate), 16), rate)
    signals(made.state, 0, "lr/scheduled", range(64, 64 * (len(stepped) + 1), 64), stepped)
    return made


def test_a_scheduler_that_goes_on_with_an_optimizer_that_was_replaced() -> None:
    (one,) = found(replaced([4.2e-3] * 10, [63, 127, 191]))
    assert (one.kind, one.causes[0].key, one.step) == ("training.lr_fault", "orphaned", 81)


@pytest.mark.parametrize(("rate", "said"), [(0.0, ["over"]), (1e-3, [])])
def test_the_rate_of_an_optimizer_that_was_replaced_is_none_of_the_next_ones(rate: float, said: list[str]) -> None:
    made = run(loss=[1.0] * 220)
    signals(made.state, 0, "lr/0", range(1, 91), np.linspace(3e-3, 1e-6, 90))
    signals(made.state, 0, "lr/1", range(91, 221, 16), [rate] * 9)
    assert [f.causes[0].key for f in found(made) if f.kind == "training.lr_fault"] == said


@pytest.mark.parametrize(("orphaned", "rates", "said"), [
    (1.0, [0.08] * 14, True), (0.0, [0.08] * 14, False), (1.0, [0.08] * 7 + [0.01] * 7, False),  # the script's own
])  # fmt: skip
def test_a_scheduler_whose_optimizer_never_steps_is_told(orphaned: float, rates: list[float], said: bool) -> None:
    made = job(1)
    signals(made.state, 0, "lr/0", range(1, 225, 16), rates)
    signals(made.state, 0, "lr/orphaned", [64, 128], [orphaned] * 2)
    made.state.signals.put_fact(0, "lr/scheduler", 1, "MultiStepLR milestones=[60, 110] gamma=0.2")
    told = [one for one in found(made) if one.causes[0].key == "orphaned"]
    assert [one.kind for one in told] == (["training.lr_fault"] if said else [])
    assert all("MultiStepLR" in one.summary and "stays at 0.08" in one.summary for one in told)


@pytest.mark.parametrize(
    ("rate", "stepped"),
    [
        (list(np.linspace(4.2e-3, 1e-3, 10)), [63, 127, 191]),  # it has a schedule of its own
        ([4.2e-3] * 10, [63, 80, 80]),  # the last phase is meant to keep its rate
        ([4.2e-3] * 4, [63, 127]),  # not for long
    ],
)
def test_an_optimizer_that_was_replaced_as_is_meant(rate: list[float], stepped: list[float]) -> None:
    assert [f for f in found(replaced(rate, stepped)) if f.causes[0].key == "orphaned"] == []


# --- steps without a gradient


@pytest.mark.parametrize(
    ("bare", "told"),
    [
        ([0.0] * 8 + [6.0] * 4, 9),
        ([0.0] * 8 + [6.0] * 3, None),  # too few
        ([6.0] * 12, None),  # never any: taken in a closure, or by hand
        ([0.0, 6.0] * 6, None),  # each second one
        ([0.0] * 8 + [5.0] * 4, None),  # one is left
    ],
)
def test_an_optimizer_that_steps_without_any_gradient(bare: list[float], told: int | None) -> None:
    made = run(2, parameters__bare=bare, parameters__owned=[6.0] * len(bare), grad_norm=[1.0] * 8)
    steps = [(f.kind, f.step, f.ranks) for f in found(made) if f.causes[0].key == "bare"]
    assert steps == ([("training.dead_parameters", told, (0, 1))] if told else [])


# --- one of several optimizers that is never cleared


def test_of_several_optimizers_the_one_whose_gradients_are_never_cleared_is_found() -> None:
    made = run(2, grad_norm=[1.0] * 60, gradients__kept=[0.0] * 60)
    for rank in range(2):
        signals(made.state, rank, "gradients/kept@1", range(30, 60), [1.0] * 30)
        signals(made.state, rank, "grad_norm@1", range(30, 60, 2), [1.0 + step for step in range(15)])
    (one,) = found(made)
    assert (one.kind, one.ranks, one.step) == ("training.gradient_accumulation", (0, 1), 30)
    rests = run(2, grad_norm=[1.0] * 60, gradients__kept=[0.0] * 60)
    signals(rests.state, 0, "gradients/kept@1", range(30, 60), [1.0] * 30)
    signals(rests.state, 0, "grad_norm@1", range(30, 60, 2), [1.0] * 15)
    assert found(rests) == []


@pytest.mark.parametrize(
    ("clipped", "told"),
    [
        ([1.4, 1.2, 0.97, 1.3] * 15, True),
        ([0.99, 1.0, 1.0, 0.99] * 15, False),  # what clipping has left rests there, and nothing is added to it
        ([1.4, 0.4, 0.7, 1.3] * 15, False),  # below the limit: what is there is another gradient
    ],
)
def test_gradients_that_are_never_cleared_are_told_where_clipping_bounds_their_norm(
    clipped: list[float], told: bool
) -> None:
    made = run(1, grad_norm=[1.0] * 60, gradients__kept=[1.0] * 60)
    signals(made.state, 0, "clip_norm", range(1, 61), clipped)
    signals(made.state, 0, "clip_norm/limit", range(1, 61), [1.0] * 60)
    kinds = [one.kind for one in found(made)]
    assert kinds == ["training.gradient_accumulation"] * told
    signals(made.state, 0, "gradients/kept@1", range(1, 61), [0.0] * 60)
    assert found(made) == []  # whose gradients are clipped is not known


# --- a game that is over


def game(gen: Sequence[float], disc: Sequence[float], adversarial: bool = True) -> Job:
    """Two models of two matrices each."""
    made = run(2, grad_norm=[1.0] * 16)
    for name, levels in (
        ("Gen.a.weight", gen),
        ("Gen.b.weight", gen),
        ("Disc.a.weight", disc),
        ("Disc.b.weight", disc),
    ):
        norms(made, name, levels, ranks=(0, 1), every=4)
    if adversarial:
        everywhere(made.state, range(2), {"logged/d_loss": [0.5] * 16, "logged/g_loss": [0.5] * 16})
    return made


LOST = [0.3 * 0.4**n for n in range(16)]
EVEN = [0.3, 0.2] * 8


def test_a_game_that_one_side_has_won_is_told_by_gradients_that_have_faded() -> None:
    (one,) = found(game(LOST, LOST))
    assert (one.kind, one.ranks, one.causes[0].key) == ("numerics.gradient_vanishing", (0, 1), "saturated")
    assert set(one.names) == {"Gen.a.weight", "Gen.b.weight", "Disc.a.weight", "Disc.b.weight"}
    (one,) = found(game(LOST, EVEN))
    assert set(one.names) == {"Gen.a.weight", "Gen.b.weight"}


def test_a_game_in_which_no_side_has_much_of_a_gradient_left_is_over() -> None:
    little = [0.3 * 0.4**n for n in range(12)] + [1.2e-4] * 6
    assert [one.causes[0].key for one in found(game(little, little))] == ["saturated"]
    assert found(game(little, EVEN)) == []


@pytest.mark.parametrize(("gen", "disc", "adversarial"), [
    (LOST, LOST, False),  # two models that have learned what there is
    (EVEN, EVEN, True),
    ([0.3 * 0.6**n for n in range(16)], EVEN, True),
])  # fmt: skip
def test_a_game_that_goes_on_is_quiet(gen: list[float], disc: list[float], adversarial: bool) -> None:
    assert found(game(gen, disc, adversarial)) == []


@pytest.mark.parametrize(("clipped", "left", "scale", "said"), [
    (5e4, 1.0 / 65536, 65536.0, True),
    (5.0, 1.0, 65536.0, False),  # unscaled before
    (0.4, 0.4 / 65536, 65536.0, False),  # nothing is clipped, and the optimizer's own norm is not known to be scaled
    (50.0, 0.5, 2.0, False),  # a factor that makes no difference to speak of
])  # fmt: skip
def test_gradients_that_are_clipped_with_the_scalers_factor_in_them_are_told(
    clipped: float, left: float, scale: float, said: bool
) -> None:
    made = run(clip_norm=[clipped] * 12, clip_norm__limit=[1.0] * 12, scaler__scale=[scale] * 12, grad_norm=[left] * 12)
    told = [one for one in found(made) if one.causes[0].key == "clipped scaled"]
    assert [one.kind for one in told] == (["numerics.gradient_vanishing"] if said else [])
    assert all("is still in them" in one.summary for one in told)
    made.state.signals.put_fact(0, "lr/0/optimizer", 1, "AdamW")
    assert all(one.severity == "info" for one in found(made) if one.causes[0].key == "clipped scaled")


def test_what_a_log_alone_does_not_show_is_not_said_of_a_loss_that_is_nan() -> None:
    made = job(2)
    signals(made.state, 0, "loss", range(1, 41), [1.0] * 40)
    signals(made.state, 1, "loss", range(1, 41), [1.0] * 30 + [math.nan] * 10)
    (one,) = found(made)
    assert (one.kind, one.ranks, one.causes[0].confidence) == ("numerics.nonfinite", (1,), 0.4)
    assert one.summary.startswith("the loss of rank 1 is nan from step 31 on, before any other rank's")
    assert "gradients" not in one.summary
    signals(made.state, 0, "loss", [41, 42], [math.nan] * 2)
    signals(made.state, 1, "loss", [41, 42], [math.nan] * 2)
    assert "the gradients bring it to rank 0" in found(made)[0].summary


def test_where_no_parameter_is_known_behind_bad_data_the_sentence_ends() -> None:
    made = run(loss=[1.0] * 30 + [math.nan] * 3, grad_norm=[1.0] * 33)
    made.state.signals.put_fact(0, "nonfinite/origin", 31, "input")
    (one,) = found(made)
    assert not one.summary.rstrip(".").endswith((" at", ","))


# --- clipping by a limit that is none


@pytest.mark.parametrize(("limit", "given", "said"), [
    (-1.0, [0.9] * 8, True), (1.0, [0.9] * 8, False), (-1.0, [4.0] * 8, False), (-1.0, [0.0] * 8, False),
])  # fmt: skip
def test_a_negative_limit_turns_gradients_round(limit: float, given: list[float], said: bool) -> None:
    made = run(2, clip_norm__limit=[limit] * 8, clip_norm=[3.0] * 8, grad_norm=given, loss=[2.0] * 8)
    assert kinds(made) == [("training.loss_divergence", (0, 1), "critical")] * said
    assert all("clip_grad_norm_" in one.names and one.causes[0].key == "clip limit" for one in found(made))


def test_a_limit_of_0_leaves_nothing() -> None:
    made = counts(zero_gradient=[10] * 5, elements_zero_gradient=[1.0] * 5)
    made.state.signals.put_fact(0, "parameters/zero_gradient", 32, "Net.fc.weight")
    assert [one.causes[0].key for one in found(made)] == ["zero"]
    signals(made.state, 0, "clip_norm/limit", range(1, 9), [0.0] * 8)
    assert [(one.kind, one.causes[0].key) for one in found(made)] == [("training.dead_parameters", "clip limit")]


def test_gradients_that_grow_with_a_loss_that_has_no_lower_end() -> None:
    lower = [-(0.05 * 1.12**n) for n in range(100)]
    made = run(1, loss=[0.04, *lower], grad_norm=[0.5 * 1.12**n for n in range(101)])
    assert [one.causes[0].key for one in found(made)] == ["unbounded"]


@pytest.mark.parametrize(("count", "severity"), [(64, ""), (96, "info"), (256, "warning")])
def test_an_optimizer_that_never_steps_is_told_once_that_is_no_long_window(count: int, severity: str) -> None:
    made = job(2)
    for rank in range(2):
        made.state.signals.put_fact(rank, "optimizer/unstepped", count, f"AdamW {count}")
    assert kinds(made) == [("training.dead_parameters", (0, 1), severity)] * bool(severity)
    for rank in range(2):
        signals(made.state, rank, "lr/0", [count + 1], [0.1])
    assert kinds(made) == []


def stepped(made: Job, times: float, *, passes: int = 0, every: int = 64, samples: int = 3) -> Job:
    """A scheduler that was stepped so often in each training step, as is told every few of them."""
    steps = range(every, every * samples + 1, every)
    signals(made.state, 0, "lr/scheduled", steps, [round(times * step) for step in steps])
    if passes:
        signals(made.state, 0, "gradients/passes", [2], [passes])
    return made


def gone_by(steps: int) -> Job:
    return rate([1e-3 * max(0.0, 1 - s / 50) for s in range(steps)], "LambdaLR")


def test_a_scheduler_that_is_stepped_for_each_micro_batch_is_the_cause_of_a_schedule_that_is_over() -> None:
    (one,) = found(stepped(gone_by(200), 4, passes=4))
    assert (one.kind, one.causes[0].key, one.step) == ("training.lr_fault", "too often", 51)
    assert "once for each backward pass of the accumulation" in one.causes[0].text
    (one,) = found(stepped(gone_by(200), 4, passes=4, samples=1))
    assert one.causes[0].key == "too often"


def test_one_that_is_stepped_several_times_for_another_reason_is_told_without_it() -> None:
    (one,) = found(stepped(gone_by(200), 3, passes=4))
    assert one.causes[0].key == "too often"
    assert "backward pass" not in one.causes[0].text


@pytest.mark.parametrize("made", [
    stepped(gone_by(200), 1, passes=4),
    stepped(gone_by(200), 0.1),
    stepped(gone_by(200), 2.4),  # now and then
    stepped(gone_by(200), 4, passes=2, samples=1),  # it may have been loaded
])  # fmt: skip
def test_a_schedule_that_is_over_though_it_is_stepped_as_it_should_be_keeps_its_cause(made: Job) -> None:
    (one,) = found(made)
    assert one.causes[0].key == "over"


def test_a_schedule_that_is_made_for_several_steps_at_once_is_no_fault() -> None:
    assert found(stepped(rate(cosine(200)), 4, passes=4)) == []
