"""What a rank tells of its optimizers' settings and of how often it has met the others."""

import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from diagd.probes import groups, hyperparameters
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.groups import Group
from diagd.probes.guard import Probe
from diagd.probes.hyperparameters import CLOCK, SETTINGS, settings_text
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE


class Told:
    def __init__(self) -> None:
        self.facts: list[tuple[str, str, int]] = []
        self.samples: list[tuple[str, float, int]] = []


@pytest.fixture
def told(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    found = Told()
    monkeypatch.setattr(SIGNALS, "fact", lambda *args: found.facts.append(args))
    monkeypatch.setattr(SIGNALS, "record", lambda *args: found.samples.append(args))
    SETTINGS.__init__()  # type: ignore[misc]
    yield found
    SETTINGS.__init__()  # type: ignore[misc]


class Backend:
    def __init__(self, issued: int) -> None:
        self.issued = issued

    def _get_sequence_number_for_group(self) -> int:
        return self.issued


def optimizer(**settings: Any) -> Any:
    return torch.optim.AdamW([torch.ones(1, requires_grad=True)], **settings)


def test_settings_are_told_by_name_without_the_rate_and_what_only_says_how_to_compute() -> None:
    text = settings_text("AdamW", optimizer(lr=1.0, betas=(0.8, 0.9)).param_groups[0])
    assert text.startswith("AdamW amsgrad=False betas=(0.8,0.9) ")
    assert "eps=1e-08" in text
    assert not any(word in text for word in ("lr", "foreach", "params"))


def test_settings_that_are_tensors_are_not_read() -> None:
    assert settings_text("SGD", {"momentum": torch.ones(1), "nesterov": True}) == "SGD nesterov=True"


def test_a_group_is_told_at_its_first_step_and_where_it_has_changed(told: Told) -> None:
    first, second = optimizer(), optimizer(weight_decay=0.5)
    for step in range(40):
        STATE.live[Live.STEP] = step
        if step == 20:
            second.param_groups[0]["weight_decay"] = 0.25
        hyperparameters._before(first)
        hyperparameters._before(second)
    assert [(name, step) for name, _, step in told.facts] == [
        ("optimizer/0", 1),
        ("optimizer/1", 1),
        ("optimizer/1", 32),
    ]
    assert "weight_decay=0.25" in told.facts[-1][1]


def test_the_meetings_are_those_of_all_ranks(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    world, pair = Backend(7), Backend(100)
    table = {
        "0": Group(0, "0", (0, 1, 2), weakref.ref(world), True, {}, [2, -1]),
        "1": Group(1, "1", (0, 1), weakref.ref(pair), True, {}, [0, -1]),
    }
    monkeypatch.setattr(groups, "TABLE", table)
    for step in range(1, 30):
        STATE.live[Live.STEP] = step
        hyperparameters._after(None)
        hyperparameters._after(None)  # another optimizer's
    assert told.samples[0] == (CLOCK, 5.0, 1)
    assert [step for _, _, step in told.samples] == [*range(1, 17), 20, 24, 28]


def test_with_an_engine_that_counts_its_steps_later_no_sample_is_missed(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As DeepSpeed's: its optimizer steps inside of the engine's own step."""
    world = Backend(7)
    monkeypatch.setattr(groups, "TABLE", {"0": Group(0, "0", (0, 1, 2), weakref.ref(world), True, {}, [2, -1])})
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    stepping = torch.optim.SGD([parameter], lr=0.1)
    probe = Probe("hyperparameters", 0, True)
    hyperparameters.install(probe, None)
    monkeypatch.setattr(STATE, "engine", True)
    for step in range(1, 30):
        STATE.live[Live.STEP] = step - 1
        stepping.step()
    hyperparameters.remove()
    assert [step for name, _, step in told.samples if name == CLOCK] == [*range(1, 17), 20, 24, 28]


def test_without_others_there_are_no_meetings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "TABLE", {})
    assert hyperparameters.meetings() == -1
