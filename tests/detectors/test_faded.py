"""A log whose gradient norm fades away, while the loss stands."""

import numpy as np
import pytest
from tests.detectors.learning import around
from tests.detectors.test_numerics import found, norms, run

from diagd.daemon.incidents.catalog import entry

FADES = np.concatenate([np.full(40, 1.0), np.geomspace(1.0, 1e-8, 30), np.full(30, 1e-8)])
STANDS, FALLS = around(2.3, 0.01, 100), np.geomspace(2.3, 1e-3, 100)


@pytest.mark.parametrize(
    ("norm", "loss", "told"),
    [
        (FADES, STANDS, True),
        (FADES, FALLS, False),  # it has learned all
        (np.maximum(FADES, 1e-4), STANDS, False),
        (FADES[:75], STANDS[:75], False),  # not for long
        (around(1.0, 0.1, 100), STANDS, False),
        (around(1e-9, 1e-10, 100), STANDS, True),  # there never was one
        (around(1e-9, 1e-10, 100), np.linspace(2.3, 1.8, 100), False),  # an optimizer that divides by it
        (around(1e-9, 1e-10, 100), 1e-6 * STANDS, False),  # of a loss as small
        ([0.0] * 100, STANDS, False),  # printed to few decimals
    ],
)
def test_a_norm_that_is_as_good_as_zero_is_told_where_the_loss_stands(
    norm: list[float], loss: list[float], told: bool
) -> None:
    made = run(1, logged__grad_norm=list(norm), logged__loss=list(loss))
    kinds = [(f.kind, f.causes[0].key) for f in found(made) if f.kind.startswith("numerics")]
    assert kinds == ([("numerics.gradient_vanishing", "whole")] if told else [])
    assert "dead" in str(entry("numerics.gradient_vanishing").fix("whole").as_json())


def test_where_each_layers_own_norm_is_known_those_tell() -> None:
    made = run(1, logged__grad_norm=list(FADES), logged__loss=list(STANDS))
    norms(made, "Net.0.weight", [0.5] * 25)
    assert [f for f in found(made) if f.causes[0].key == "whole"] == []
