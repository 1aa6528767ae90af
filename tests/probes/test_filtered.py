"""What nan_to_num keeps from a loss, read from the loss's graph."""

from collections.abc import Callable

import pytest
import torch
from tests.probes.scalars import told
from torch import Tensor, nn

from diagd.probes import filtered
from diagd.probes.box.writer import BoxWriter
from diagd.probes.signals import SIGNALS

MODEL = nn.Linear(5, 4)
X = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
NAN = torch.tensor([float("nan")] * 2 + [1.0] * 6)
ATTENTION = torch.full((8, 8), float("-inf"))


def parts(recording: BoxWriter, loss: Callable[[Tensor], Tensor], steps: int = 1) -> list[float]:
    filtered.LOOKS.next = 0
    for step in range(1, steps + 1):
        SIGNALS.record("loss", 1.0, step)  # so that there is something to read
        filtered.look(loss(MODEL(X)), step)
    series = told(recording).series(0, "loss/filtered")
    return series.values.tolist() if series is not None else []


@pytest.mark.parametrize(("loss", "part"), [
    (lambda out: torch.nan_to_num((out.sum(1) * NAN).mean()), 1.0),
    (lambda out: torch.nan_to_num(out.sum(1) * NAN).mean(), 0.25),
    (lambda out: torch.nan_to_num((out[:0] ** 2).mean()) + out.pow(2).mean(), 1.0),
    (lambda out: torch.nan_to_num(out.sum(1)).mean(), 0.0),
])  # fmt: skip
def test_the_part_of_a_loss_that_is_hidden(recording: BoxWriter, loss: Callable[[Tensor], Tensor], part: float) -> None:
    assert parts(recording, loss) == [pytest.approx(part)]


@pytest.mark.parametrize("loss", [
    lambda out: out.pow(2).mean(),
    lambda out: MODEL(torch.nan_to_num(ATTENTION.softmax(1)) @ torch.nn.functional.pad(out, (0, 1))).mean(),
    lambda out: nn.functional.linear(torch.nan_to_num(out * NAN[:, None]), MODEL.weight.T).mean(),
])  # fmt: skip
def test_what_is_filtered_in_front_of_a_layer_is_the_models_own(
    recording: BoxWriter, loss: Callable[[Tensor], Tensor]
) -> None:
    assert parts(recording, loss) == []


def test_a_filter_is_followed_from_step_to_step(recording: BoxWriter) -> None:
    assert parts(recording, lambda out: torch.nan_to_num(out.sum() * NAN[0]), steps=9) == [1.0] * 9
    assert torch.isfinite(MODEL.weight).all()
