"""Losses of which nan_to_num hides a part."""

import pytest
from tests.detectors.test_numerics import found, run

HIDDEN = [0.0] * 20 + [1.0] * 12


@pytest.mark.parametrize(("parts", "severity"), [
    (HIDDEN, "warning"), ([0.25] * 12, "info"), ([1.0] * 7, ""), ([1.0] * 12 + [0.0], ""), ([0.01] * 40, ""),
])  # fmt: skip
def test_a_loss_that_is_hidden_in_each_step_is_told(parts: list[float], severity: str) -> None:
    made = run(2, loss__filtered=parts, loss=[1.0] * len(parts))
    told = [(f.kind, f.severity.value, f.causes[0].key) for f in found(made) if f.kind == "numerics.nonfinite"]
    assert told == ([("numerics.nonfinite", severity, "filtered")] if severity else [])


def test_the_step_since_which_it_is_hidden() -> None:
    (told,) = [f for f in found(run(2, loss__filtered=HIDDEN, loss=[1.0] * 32)) if f.causes[0].key == "filtered"]
    assert (told.step, told.ranks) == (21, (0, 1))
    assert "nan_to_num" in told.names
