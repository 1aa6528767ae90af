"""Who had the first NaN of a backward pass: told of the passes before it was seen."""

import sys
import warnings
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
import torch.utils.hooks
from tests.probes.scalars import clean, look, told
from torch import nn

from diagd.probes import compiling
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.own_gradients import SIGNAL
from diagd.probes.sentinel import KEPT, SENTINEL
from diagd.probes.state import STATE


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    world = SimpleNamespace(is_initialized=lambda: True, get_world_size=lambda: 2)
    monkeypatch.setitem(sys.modules, "torch.distributed", world)
    with clean():
        SENTINEL.__init__()  # type: ignore[misc]
        SENTINEL.probe = Probe("norms", 0, always=True)
        yield
        SENTINEL.take_down()
        SENTINEL.__init__()  # type: ignore[misc]


def model() -> nn.Sequential:
    torch.manual_seed(1)
    made = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    look(made)
    del optimizer
    SENTINEL.place()
    return made


def one_pass(made: nn.Sequential, step: int, bad: bool = False) -> torch.Tensor:
    """A pass of that step; where it is `bad` the gradient of the first layer is NaN, as by sqrt at 0."""
    STATE.live[Live.STEP] = step - 1
    made.zero_grad()
    inside = made[0](torch.ones(2, 4))
    loss = made[1](inside).sum() + (torch.sqrt(inside * 0.0).sum() if bad else 0.0)
    loss.backward()
    gradient = made[0].bias.grad
    assert isinstance(gradient, torch.Tensor)
    return gradient.clone()


def hooks(made: nn.Sequential) -> list[str]:
    return [name for name, p in made.named_parameters() if p._backward_hooks]


def test_the_smallest_parameter_near_the_input_tells_in_which_pass_it_was(recording: BoxWriter) -> None:
    made = model()
    assert hooks(made) in (["0.bias"], ["1.bias"])
    for step in (1, 2, 3):
        one_pass(made, step)
    one_pass(made, 4, bad=True)
    one_pass(made, 5, bad=True)
    SENTINEL.tell()
    found = told(recording).series(0, SIGNAL)
    if SENTINEL.name.endswith("0.bias"):
        assert found is not None
        assert dict(zip(found.steps.tolist(), found.values.tolist(), strict=True)) == {1: 0, 2: 0, 3: 0, 4: 1}
    assert hooks(made) == []  # it has done its work
    SENTINEL.place()
    assert hooks(made) == []


def test_few_passes_are_kept(recording: BoxWriter) -> None:
    made = model()
    for step in range(1, KEPT + 9):
        one_pass(made, step)
    SENTINEL.tell()
    found = told(recording).series(0, SIGNAL)
    assert found is not None
    assert found.steps.tolist() == list(range(9, KEPT + 9))


@pytest.mark.parametrize("reason", ["alone", "compiled"])
def test_it_is_not_there_where_it_is_of_no_use_or_would_be_seen(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    if reason == "alone":
        monkeypatch.setattr(sys.modules["torch.distributed"], "get_world_size", lambda: 1)
    else:
        monkeypatch.setattr(compiling, "in_use", lambda: True)
    assert hooks(model()) == []


def test_gradients_are_the_same_to_the_last_bit(recording: BoxWriter) -> None:
    watched = [one_pass(made, 1) for made in [model()]]
    SENTINEL.take_down()
    made = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    torch.manual_seed(1)
    for layer in made:
        assert isinstance(layer, nn.Linear)
        layer.reset_parameters()
    assert torch.equal(watched[0], one_pass(made, 1))


def test_torch_does_not_warn_of_it_where_the_parameter_is_sent_to_another_process(recording: BoxWriter) -> None:
    made = model()
    one_pass(made, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for parameter in made.parameters():
            torch.utils.hooks.warn_if_has_hooks(parameter)
