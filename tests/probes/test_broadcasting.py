"""Shapes of predictions and targets in the loss's graph."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diagd.probes.broadcasting import broadcast

MODEL = nn.Linear(5, 1)
X, Y = torch.randn(8, 5), torch.randn(8)
SCALE = nn.Parameter(torch.ones(1))


def found(loss: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    return broadcast(loss.grad_fn)


@pytest.mark.parametrize("loss", [
    lambda out: ((out - Y) ** 2).mean(), lambda out: (Y - out).abs().mean(), lambda out: ((out - Y) ** 2).sum() / 8,
    lambda out: F.mse_loss(out, Y), lambda out: F.smooth_l1_loss(out, Y), lambda out: SCALE * ((out - Y) ** 2).mean(),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_predictions_of_one_column_against_a_row_of_targets_are_seen(loss: object) -> None:
    assert callable(loss)
    assert found(loss(MODEL(X))) == ((8, 1), (8, 8))


def test_a_row_of_predictions_against_a_column_of_targets_is_seen() -> None:
    assert found(((MODEL(X)[:, 0] - Y[:, None]) ** 2).mean()) == ((8,), (8, 8))


@pytest.mark.parametrize("loss", [
    lambda out: ((out[:, 0] - Y) ** 2).mean(), lambda out: ((out - Y[:, None]) ** 2).mean(),
    lambda out: F.softplus(out - out.T).mean(),  # pairs of scores
    lambda out: ((out - Y.mean()) ** 2).mean(),
    lambda out: ((out[:, None] - torch.zeros(1, 8, 1)) ** 2).mean(),
    lambda out: F.binary_cross_entropy_with_logits(out[:, 0], Y.sigmoid()),
])  # fmt: skip
def test_shapes_that_fit_and_pairs_that_are_meant_are_not(loss: object) -> None:
    assert callable(loss)
    assert found(loss(MODEL(X))) is None
