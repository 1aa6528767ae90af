"""Autocast to float16 whose gradients no scaler lifts."""

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import job

from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.detectors.unscaled import unscaled


@pytest.mark.parametrize(("casts", "scaled", "said"), [
    ([2.0] * 40, False, True), ([2.0] * 40, True, False), ([1.0] * 40, False, False),
    ([0.0] * 8 + [2.0] * 32, False, False), ([2.0] * 20, False, False),
])  # fmt: skip
def test_float16_without_a_scaler_is_worth_knowing(casts: list[float], scaled: bool, said: bool) -> None:
    made = job(2)
    for rank in (0, 1):
        signals(made.state, rank, "autocast/on", range(1, len(casts) + 1), casts)
        signals(made.state, rank, "lr/0", [1], [0.1])
        if scaled:
            signals(made.state, rank, "scaler/scale", [1], [65536.0])
    made.state.signals.put_fact(0, "parameters/zero_gradient", 2, "Net.enc.weight, Net.enc.bias")
    found = list(unscaled(scene_of(made.report().state)))
    assert [(one.kind, one.severity, one.ranks) for one in found] == [("precision.underflow", "info", (0, 1))] * said
    assert all("Net.enc.weight" in one.names and "grad_scaler" in one.names for one in found)


def test_what_only_computes_and_does_not_train_needs_none() -> None:
    made = job(1)
    signals(made.state, 0, "autocast/on", range(1, 41), [2.0] * 40)
    assert list(unscaled(scene_of(made.report().state))) == []
