"""Parameters in plain lists and dictionaries of a model: counted where they were to train, and only there."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.probes.scalars import clean, look, step, told
from torch import nn

from diagd.probes.box.writer import BoxWriter


class Towers(nn.Module):
    """Adds up what some parts make of its input; they lie wherever a test puts them."""

    def __init__(self, parts: Any) -> None:
        super().__init__()
        self.parts = parts
        self.out = nn.Linear(12, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in _flat(self.parts):
            x = x + (part(x) if isinstance(part, nn.Module) else part)
        found: torch.Tensor = self.out(x)
        return found


def _flat(parts: Any) -> Iterator[Any]:
    if not isinstance(parts, (dict, list, tuple, nn.ModuleList)):
        yield parts
        return
    for part in parts.values() if isinstance(parts, dict) else parts:
        yield from _flat(part)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with clean():
        yield


def train(model: Towers, *more: nn.Parameter, steps: int = 25) -> None:
    optimizer = torch.optim.SGD([*model.parameters(), *more], lr=0.1)
    look(model)
    for seed in range(steps):
        x = torch.randn(4, 12, generator=torch.Generator().manual_seed(seed))
        step(model(x).square().mean(), optimizer)


def counted(box: BoxWriter, what: str) -> list[float]:
    found = told(box).series(0, f"parameters/{what}")
    return found.values.tolist() if found is not None else []


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ({"left": nn.Linear(12, 12)}, "Towers.parts['left'].weight, Towers.parts['left'].bias"),
        ([nn.Linear(12, 12, bias=False)], "Towers.parts[0].weight"),
        ({"a": (nn.Parameter(torch.zeros(12)),)}, "Towers.parts['a'][0]"),
        (OrderedDict(a=nn.Parameter(torch.zeros(12))), "Towers.parts['a']"),
    ],
)
def test_parts_in_a_plain_container_are_counted_while_they_stand_still(
    recording: BoxWriter, parts: Any, names: str
) -> None:
    train(Towers(parts))
    many = float(names.count(",") + 1)
    assert counted(recording, "unlisted") == [0, many, many, many]  # seen once before it is said that they stand still
    fact = told(recording).fact(0, "parameters/unlisted")
    assert fact is not None
    assert fact[1] == names
    assert counted(recording, "unlisted_fresh")[-1] >= 1


def test_a_network_that_was_trained_elsewhere_is_not_fresh(recording: BoxWriter) -> None:
    lens = nn.Linear(12, 12, bias=False)
    with torch.no_grad():
        lens.weight.copy_(torch.eye(12))
    train(Towers([lens]))
    assert counted(recording, "unlisted")[-1] == 1
    assert counted(recording, "unlisted_fresh")[-1] == 0


def test_parts_that_torch_knows_that_are_frozen_or_that_an_optimizer_has_are_in_order(recording: BoxWriter) -> None:
    mine, frozen = nn.Linear(12, 12), nn.Linear(12, 12).requires_grad_(False)
    train(Towers(nn.ModuleList([nn.Linear(12, 12)])))
    train(Towers([mine, frozen]), *mine.parameters())
    assert not any(counted(recording, "unlisted"))


def test_a_part_that_an_optimizer_holds_at_a_rate_of_0_is_its_schedules_matter(recording: BoxWriter) -> None:
    part = nn.Linear(12, 12)
    model = Towers([part])
    groups: list[dict[str, Any]] = [
        {"params": list(model.parameters())},
        {"params": list(part.parameters()), "lr": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    look(model)
    for seed in range(25):
        x = torch.randn(4, 12, generator=torch.Generator().manual_seed(seed))
        step(model(x).square().mean(), optimizer)
    assert not any(counted(recording, "unlisted"))


def test_a_part_that_the_script_moves_by_itself_is_in_order(recording: BoxWriter) -> None:
    model, own = Towers([]), nn.Parameter(torch.zeros(12))
    model.parts.append(own)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    look(model)
    for _ in range(25):
        step(model(torch.ones(2, 12)).square().mean(), optimizer)
        with torch.no_grad():
            own.add_(0.01)
    assert not any(counted(recording, "unlisted"))
