"""Buffers that are no longer finite, beside a loss that is."""

import math

from tests.detectors.scalars import everywhere
from tests.detectors.states import Job, job

from diagd.daemon.detectors.numerics.rules import NUMERICS
from diagd.daemon.detectors.registry import detect
from diagd.daemon.detectors.scene import scene_of


def made(line: str, loss: float = 1.0) -> Job:
    one = job(2)
    losses = [1.0] * 20 + [loss] * 9
    everywhere(one.state, range(2), {"loss": losses, "grad_norm": [1.0] * 29, "lr/0": [0.1] * 29})
    for rank in range(2):
        one.state.signals.put_fact(rank, "buffers/spoilt", 16, line)
    return one


def kinds(one: Job) -> list[tuple[str, str, str]]:
    scene = scene_of(one.report().state)
    return [(f.kind, f.causes[0].key, f.severity.value) for rule in NUMERICS for f in rule(scene)]


def test_statistics_that_hold_nan_are_told_while_the_loss_is_finite() -> None:
    one = made("Net.bn.running_mean\tfloat32\tnan\nNet.bn.running_var\tfloat32\tnan")
    assert kinds(one) == [("numerics.nonfinite", "buffer", "warning")]
    (found,) = [f for f in detect(one.report().state) if f.kind == "numerics.nonfinite"]
    assert (found.ranks, found.step) == ((0, 1), 16)
    assert found.names == ("Net.bn.running_mean", "Net.bn.running_var")
    assert found.explains == ()


def test_statistics_beyond_half_precision_are_an_overflow() -> None:
    assert kinds(made("Net.bn.running_var\tfloat16\tinf")) == [("precision.overflow", "buffer", "warning")]


def test_where_the_loss_is_not_finite_it_is_told_alone() -> None:
    assert kinds(made("Net.bn.running_mean\tfloat32\tnan", math.nan)) == [("numerics.nonfinite", "loss", "critical")]
