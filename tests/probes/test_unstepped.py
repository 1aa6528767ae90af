"""Optimizers that were made and do not step."""

from collections.abc import Iterator

import pytest
import torch
from tests.probes.scalars import told
from torch import nn

from diagd.probes import unstepped
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter


@pytest.fixture(autouse=True)
def _fresh(recording: BoxWriter) -> Iterator[None]:
    unstepped.forget()
    yield
    unstepped.forget()


def passes(recording: BoxWriter, model: nn.Module, change: float = 0.0) -> str:
    """After so many backward passes, what is told."""
    for number in range(1, 97):
        model(torch.ones(2, 3)).sum().backward()
        if change:
            for parameter in model.parameters():
                parameter.data -= change
        recording.live[Live.BACKWARDS] = number
        unstepped.passed()
    path = recording.path.with_suffix(".signals")
    fact = told(recording).fact(0, "optimizer/unstepped") if path.exists() else None
    return fact[1] if fact is not None else ""


def test_one_that_was_made_and_never_steps_is_told_with_the_passes(recording: BoxWriter) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    unstepped.made(optimizer)
    assert passes(recording, model) == "AdamW 96"


def test_weights_that_are_updated_by_hand_or_by_it_are_not(recording: BoxWriter) -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    unstepped.made(optimizer)
    assert passes(recording, model, change=0.01) == ""
    assert passes(recording, other) == ""  # which are not the optimizer's
    recording.live[Live.OPTIMIZER_STEPS] = 1
    assert passes(recording, model) == ""


def test_without_an_optimizer_there_is_nothing_to_tell(recording: BoxWriter) -> None:
    assert passes(recording, nn.Linear(3, 2)) == ""
