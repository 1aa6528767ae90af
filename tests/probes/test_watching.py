"""What a script registers by itself: seen as torch's own would be, and nothing outside diagd."""

import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from diagd.probes import inventory, watching
from diagd.probes.box.ledger import Flag
from diagd.probes.box.writer import BoxWriter
from diagd.probes.compiling import hook_eager
from diagd.probes.guard import Probe
from diagd.probes.settings import Settings
from diagd.probes.state import STATE


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)


class Descent:
    """An optimizer of the script's own."""

    def __init__(self, params: Any) -> None:
        self.params, self.steps = list(params), 0

    def step(self) -> str:
        self.steps += 1
        return "stepped"


class Grouped(Descent):
    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.param_groups = [{"params": self.params, "lr": 0.5}]


@pytest.fixture
def seen(recording: BoxWriter) -> Iterator[list[Any]]:
    """The optimizers that hooks of ours saw before and after each step."""
    found: list[Any] = []
    probe = Probe("steps", 0, True)
    module: Any = sys.modules["torch.optim.optimizer"]
    handles = [
        register(hook_eager(torch, probe, found.append))
        for register in (module.register_optimizer_step_pre_hook, module.register_optimizer_step_post_hook)
    ]
    yield found
    for handle in handles:
        handle.remove()
    watching._names.clear()
    watching._stands.clear()


@pytest.mark.parametrize("kind", [Descent, Grouped])
def test_each_step_of_an_optimizer_of_the_scripts_own_is_seen(seen: list[Any], kind: type[Descent]) -> None:
    tower = Tower()
    tower.fc.bias.requires_grad_(False)
    mine = kind(tower.parameters())
    watching.watch(model=tower, optimizer=mine)
    watching.watch(optimizer=mine)
    assert mine.step() == "stepped"
    assert (mine.steps, len(seen)) == (1, 2)
    stand = seen[0]
    assert type(stand).__name__ == kind.__name__
    owned = {id(parameter) for group in stand.param_groups for parameter in group["params"]}
    assert id(tower.fc.weight) in owned
    assert (id(tower.fc.bias) in owned) == (kind is Grouped)
    found = {one.name: one for one in inventory.take() if one.module is tower.fc}
    assert found["Tower.fc.weight"].flags & Flag.OWNED


def test_one_that_is_gone_is_forgotten(seen: list[Any]) -> None:
    mine = Descent([torch.ones(1)])
    watching.watch(optimizer=mine)
    assert len(watching.optimizers()) == 1
    del mine
    gc.collect()
    assert watching.optimizers() == []


def test_torchs_own_are_not_seen_twice(seen: list[Any]) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    watching.watch(optimizer=optimizer)
    optimizer.step()
    assert seen == [optimizer, optimizer]


def test_hooks_of_the_scripts_own_are_not_run(seen: list[Any]) -> None:
    theirs: list[Any] = []
    module: Any = sys.modules["torch.optim.optimizer"]
    handle = module.register_optimizer_step_pre_hook(lambda *args: theirs.append(args))
    mine = Descent([])
    watching.watch(optimizer=mine)
    mine.step()
    handle.remove()
    assert theirs == []


def test_models_that_look_alike_are_told_apart_by_their_names(seen: list[Any]) -> None:
    first, second = Tower(), Tower()
    mine = {id(first.fc), id(second.fc)}

    def names() -> set[str]:
        return {one.name for one in inventory.take() if id(one.module) in mine}

    assert names() == set()
    watching.watch(model=first, name="left")
    watching.watch(model=second, name="right")
    assert {"left.fc.weight", "right.fc.weight"} <= names()


def test_outside_diagd_nothing_is_done() -> None:
    STATE.settings = Settings()
    tower = Tower()
    mine = Descent(tower.parameters())
    watching.watch(model=tower, optimizer=mine, name="tower")
    assert "step" not in vars(mine)
    assert watching.name_of(tower) is None


def test_one_that_takes_no_attributes_is_left_alone_and_said(seen: list[Any]) -> None:
    class Slotted:
        __slots__ = ("__weakref__",)

        def step(self) -> None:
            """Do nothing."""

    watching.watch(optimizer=Slotted())
    assert any("Slotted" in note for note in STATE.notes)
    assert watching.optimizers() == []
