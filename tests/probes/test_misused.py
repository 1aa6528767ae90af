"""What a loss function was given, by the loss's graph."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from tests.probes.scalars import told
from torch import Tensor, nn

from diagd.probes import misused, nodes
from diagd.probes.box.writer import BoxWriter
from diagd.probes.signals import SIGNALS

MODEL = nn.Linear(5, 4)
X, Y = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4
TAGS = F.one_hot(Y, 4).float()


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
    nn.init.normal_(MODEL.weight)


def said(recording: BoxWriter, loss: Tensor, step: int = 1) -> str:
    misused.LOOKS.next = 0
    SIGNALS.record("loss", 1.0, step)  # so that there is something to read
    misused.look(loss, step)
    fact = told(recording).fact(0, "loss/misused")
    return fact[1] if fact is not None else ""


@pytest.mark.parametrize(("loss", "text"), [
    (lambda out: F.cross_entropy(out.softmax(-1), Y), "softmax twice 4"),
    (lambda out: F.cross_entropy(out.softmax(1)[:, :], Y) / 2 + out.pow(2).mean(), "softmax twice 4"),
    (lambda out: F.cross_entropy(out.softmax(-1).view(2, 4, 4).transpose(1, 2), Y.view(2, 4)), "softmax twice 4"),
    (lambda out: F.cross_entropy(out.sigmoid(), Y), "sigmoid before softmax"),
    (lambda out: F.binary_cross_entropy_with_logits(out.sigmoid().reshape(-1), TAGS.reshape(-1)), "sigmoid twice"),
    (lambda out: F.nll_loss(out.log_softmax(0), Y), "softmax over samples"),
    (lambda out: F.nll_loss(out, Y), "scores"),
    (lambda out: F.nll_loss(out.softmax(1), Y), "scores"),
])  # fmt: skip
def test_what_a_loss_is_given_beside_what_it_is_made_for(
    recording: BoxWriter, loss: Callable[[Tensor], Tensor], text: str
) -> None:
    assert said(recording, loss(MODEL(X))) == text


@pytest.mark.parametrize("loss", [
    lambda out: F.cross_entropy(out, Y), lambda out: F.cross_entropy(out.log_softmax(1), Y),
    lambda out: F.nll_loss(out.log_softmax(-1), Y), lambda out: F.nll_loss(out.softmax(1).log(), Y),
    lambda out: F.binary_cross_entropy(out.sigmoid(), TAGS), lambda out: F.binary_cross_entropy_with_logits(out, TAGS),
    lambda out: F.cross_entropy(10.0 * out.softmax(1), Y),  # with a temperature of its own
    lambda out: F.cross_entropy(out.softmax(1) @ torch.randn(4, 4), Y),  # attention
    lambda out: F.nll_loss((out.softmax(1) + 1e-9).log().half().float(), Y),
    lambda out: F.mse_loss(out.softmax(1), TAGS),
])  # fmt: skip
def test_losses_of_what_they_are_made_for_are_quiet(recording: BoxWriter, loss: Callable[[Tensor], Tensor]) -> None:
    assert said(recording, loss(MODEL(X))) == ""


def test_a_loss_of_what_is_not_trained_has_no_graph(recording: BoxWriter) -> None:
    assert said(recording, torch.zeros(())) == ""


def test_it_is_looked_at_ever_more_seldom(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def nearest(loss: int, most: int) -> tuple[object, ...]:
        seen.append(loss)
        return ()

    monkeypatch.setattr(nodes, "nearest", nearest)
    monkeypatch.setattr(misused.LOOKS, "next", 0)
    for step in range(1, 300, 2):  # short steps are not all looked at
        misused.look(SimpleNamespace(grad_fn=step), step)
    assert seen == [1, 3, 13, 53, 213]
