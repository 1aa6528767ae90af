"""Of findings about what a training computes the deepest cause alone is told."""

import pytest

from diagd.daemon.detectors.consequences import FOLLOW, without_consequences
from diagd.daemon.detectors.finding import Basis, Cause, Finding, Severity
from diagd.daemon.incidents.catalog import KINDS


def finding(kind: str, *ranks: int) -> Finding:
    return Finding(kind, Severity.WARNING, ranks, kind, ())


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (["numerics.nonfinite", "numerics.gradient_explosion", "training.loss_spike"], ["numerics.nonfinite"]),
        (["precision.overflow", "numerics.nonfinite"], ["precision.overflow"]),
        (["precision.stale_cache", "training.kl_zero", "training.loss_plateau"], ["precision.stale_cache"]),
        (["training.dead_parameters", "precision.underflow"], ["precision.underflow"]),
        (["training.lr_fault", "training.loss_plateau"], ["training.lr_fault"]),
        (["training.loss_plateau", "memory.host_leak"], ["training.loss_plateau", "memory.host_leak"]),
    ],
)
def test_what_follows_is_not_told(kinds: list[str], told: list[str]) -> None:
    assert [f.kind for f in without_consequences(finding(kind, 0) for kind in kinds)] == told


def proven(kind: str, key: str) -> Finding:
    cause = Cause(key, "", 0.95, Basis.OBSERVATION, ())
    return Finding(kind, Severity.WARNING, (0,), kind, (cause,))


def test_what_was_seen_in_the_program_is_the_cause_of_what_is_computed() -> None:
    scores, explosion = proven("training.loss_divergence", "scores"), finding("numerics.gradient_explosion", 0)
    assert [f.kind for f in without_consequences([explosion, scores])] == ["training.loss_divergence"]
    twice, gone = proven("training.loss_plateau", "softmax twice"), finding("numerics.gradient_vanishing", 0)
    assert [f.kind for f in without_consequences([gone, twice])] == ["training.loss_plateau"]
    risen = proven("training.loss_divergence", "risen")
    assert [f.kind for f in without_consequences([explosion, risen])] == ["numerics.gradient_explosion"]


@pytest.mark.parametrize("key", ["kept", "between", "discarded", "undivided"])
def test_a_loss_that_goes_astray_with_gradients_that_are_accumulated_wrongly_follows_from_them(key: str) -> None:
    follow = [finding(f"training.loss_{what}", 0) for what in ("spike", "divergence", "plateau")]
    (one,) = without_consequences([proven("training.gradient_accumulation", key), *follow])
    assert one.kind == "training.gradient_accumulation"
    assert set(one.explains) >= {"training.loss_divergence", "training.loss_spike"}


def test_a_rate_that_is_far_too_high_has_killed_the_units_without_a_gradient() -> None:
    follow = finding("numerics.gradient_vanishing", 0), finding("training.loss_spike", 0)
    high, over = proven("training.lr_fault", "high"), proven("training.lr_fault", "over")
    assert [f.kind for f in without_consequences([high, *follow])] == ["training.lr_fault"]
    assert len(without_consequences([over, *follow])) == 3


def test_ranks_do_not_count_as_the_reduction_spreads_what_one_computes() -> None:
    both = [finding("numerics.nonfinite", 2), finding("numerics.gradient_explosion", 0, 1)]
    assert [f.ranks for f in without_consequences(both)] == [(2,)]


def test_all_kinds_that_are_named_exist() -> None:
    named = {*FOLLOW, *(kind for kinds in FOLLOW.values() for kind in kinds)}
    assert not [name for name in named if not any(kind.startswith(name) for kind in KINDS)]


def test_nothing_explains_itself_in_a_circle() -> None:
    for kind, followers in FOLLOW.items():
        for follower in followers:
            assert kind not in FOLLOW.get(follower, ())


def test_what_is_only_worth_knowing_explains_nothing() -> None:
    info = Finding("numerics.nonfinite", Severity.INFO, (0,), "", ())
    assert without_consequences([info, finding("training.loss_spike", 0)])[1].kind == "training.loss_spike"
