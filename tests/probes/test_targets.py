"""The entropy of a classifier's targets, as the graph of its loss tells it."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from tests.probes.scalars import clean, told
from torch import Tensor, nn

from diagd.probes import targets
from diagd.probes.box.writer import BoxWriter
from diagd.probes.signals import SIGNALS

STEP = 8


Of = Callable[..., list[float]]


@pytest.fixture
def of(recording: BoxWriter) -> Iterator[Of]:
    """All that is told, with that of this loss."""

    def told_of(loss: Tensor, step: int = STEP) -> list[float]:
        targets.look(loss, step)
        SIGNALS.record("marker", 0.0, step)
        signals = told(recording)
        found = [signals.series(0, f"loss/target_{name}") for name in ("entropy", "variance")]
        return [value for one in found if one is not None for value in one.values]

    with clean():
        yield told_of


def scores(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def test_all_classes_alike_give_the_logarithm_of_their_number(of: Of) -> None:
    (entropy,) = of(F.cross_entropy(scores(4000, 8), torch.arange(4000) % 8))
    assert entropy == pytest.approx(math.log(8), abs=2e-3)


def test_classes_of_other_frequencies_give_less(of: Of) -> None:
    (entropy,) = of(F.cross_entropy(scores(4000, 2), (torch.arange(4000) % 4 == 0).long()))
    assert entropy == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75), abs=1e-3)


@pytest.mark.parametrize("padding", [0, -100])
def test_what_is_left_out_of_the_loss_is_not_counted(of: Of, padding: int) -> None:
    wanted = 1 + torch.arange(4000).reshape(40, 100) % 5
    wanted[:, 60:] = padding
    (entropy,) = of(F.cross_entropy(scores(40, 6, 100), wanted, ignore_index=padding))
    assert entropy == pytest.approx(math.log(5), abs=2e-3)


def test_few_samples_are_corrected_and_more_are_added(of: Of) -> None:
    torch.manual_seed(0)
    for step in (8, 16, 32):
        found = of(F.cross_entropy(scores(100, 40), torch.randint(0, 40, (100,))), step)
    assert len(found) == 3
    assert found[-1] == pytest.approx(math.log(40), rel=0.02)


@pytest.mark.parametrize("loss", [
    lambda x, y: F.cross_entropy(x, y) + x.pow(2).mean(), lambda x, y: F.cross_entropy(x, y) / 4,
    lambda x, y: F.cross_entropy(x, y, weight=torch.ones(8)), lambda x, y: F.cross_entropy(x, y, reduction="sum"),
    lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), lambda x, y: x.mean(),
])  # fmt: skip
def test_other_losses_do_not_tell(of: Of, loss: object) -> None:
    assert callable(loss)
    assert of(loss(scores(64, 8), torch.arange(64) % 8)) == []


Loss = Callable[[Tensor, Tensor], Tensor]
YES_OR_NO: list[Loss] = [
    F.binary_cross_entropy_with_logits, lambda x, y: F.binary_cross_entropy(x.sigmoid(), y),
]  # fmt: skip


@pytest.mark.parametrize("loss", YES_OR_NO)
def test_yes_or_no_answers_give_the_entropy_of_how_often_each_is_yes(of: Of, loss: Loss) -> None:
    (one,) = of(loss(scores(4000), (torch.arange(4000) % 4 == 0).float()))
    assert one == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75), abs=1e-3)


def test_of_several_answers_it_is_the_mean_of_each_ones(of: Of) -> None:
    wanted = torch.stack([torch.arange(4000) % 2 == 0, torch.zeros(4000, dtype=torch.bool)], 1).float()
    (one,) = of(F.binary_cross_entropy_with_logits(scores(4000, 2), wanted))
    assert one == pytest.approx(math.log(2) / 2, abs=1e-3)


def test_of_a_mask_the_places_count_as_samples(of: Of) -> None:
    wanted = torch.zeros(8, 1, 16, 16)
    wanted[:, :, :, :4] = 1
    (one,) = of(F.binary_cross_entropy_with_logits(scores(8, 1, 16, 16), wanted))
    assert one == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75), abs=1e-3)


def test_numbers_give_their_variance_and_more_are_added(of: Of) -> None:
    wanted = torch.arange(64.0).reshape(32, 2) + 1000
    for step in (8, 16, 24):
        found = of(F.mse_loss(scores(32, 2), wanted), step)
    assert len(found) == 3
    assert found[0] == pytest.approx(wanted.var(0).mean().item())
    assert found[-1] == pytest.approx(wanted.repeat(3, 1).var(0).mean().item())


def test_targets_that_are_computed_and_soft_or_weighed_ones_tell_nothing(of: Of) -> None:
    wanted = (torch.arange(64) % 2).float()
    assert of(F.mse_loss(scores(64), scores(64))) == []
    assert of(F.binary_cross_entropy_with_logits(scores(64), wanted * 0.9)) == []
    assert of(F.binary_cross_entropy_with_logits(scores(64), wanted, pos_weight=torch.tensor(2.0))) == []
    assert of(F.binary_cross_entropy(scores(64).sigmoid(), wanted, reduction="sum")) == []
    assert of(F.mse_loss(scores(64), wanted, reduction="sum")) == []


def test_once_there_are_enough_only_some_steps_are_looked_at(of: Of) -> None:
    wanted = torch.arange(float(targets.ENOUGH))
    for step in (8, 24, 32):
        found = of(F.mse_loss(scores(len(wanted)), wanted), step)
    assert len(found) == 2


def test_other_steps_are_not_looked_at(of: Of) -> None:
    assert of(F.cross_entropy(scores(64, 8), torch.arange(64) % 8), STEP + 1) == []


def test_the_graph_still_goes_backward_and_the_targets_are_left_as_they_are(of: Of) -> None:
    model, wanted = nn.Linear(4, 8), torch.arange(64) % 8
    kept = wanted.clone()
    loss = F.cross_entropy(model(torch.ones(64, 4)), wanted)
    of(loss)
    loss.backward()  # type: ignore[no-untyped-call]
    assert model.weight.grad is not None
    assert wanted.equal(kept)
