"""What optimizers keep, with the names and places of the parameters it is kept for."""

import weakref
from typing import Any

import pytest
import torch
from torch import nn

from diagd.probes import states
from diagd.probes.box.ledger import Flag, Kind
from diagd.probes.placement import Placement
from diagd.probes.states import Owner

REPLICAS = Placement("ddp", (0, 1))


def stepped(model: nn.Module, make: Any) -> Any:
    optimizer = make(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return optimizer


def owners(model: nn.Module) -> dict[int, Owner]:
    return {id(p): Owner(f"Net.{name}", Kind.STATE, REPLICAS, 3) for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (torch.optim.AdamW, ["weight.step", "weight.exp_avg", "weight.exp_avg_sq", "bias.exp_avg", "bias.exp_avg_sq"]),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), ["weight.momentum_buffer", "bias.momentum_buffer"]),
        (lambda p: torch.optim.SGD(p, lr=0.1), []),
    ],
)
def test_moments_are_named_after_their_parameters_and_one_count_stands_for_all(make: Any, kept: list[str]) -> None:
    model = nn.Linear(3, 2)
    found = list(states.of(stepped(model, make), owners(model)))
    assert [owner.name for owner, _, _ in found] == [f"Net.{name}" for name in kept]
    assert all((owner.kind, owner.placement, owner.flags) == (Kind.STATE, REPLICAS, 3) for owner, _, _ in found)


def test_it_is_read_where_it_is_held_now_and_no_more_when_it_is_gone() -> None:
    model = nn.Linear(3, 2)
    optimizer = stepped(model, torch.optim.AdamW)
    reads = {owner.name: read for owner, _, read in states.of(optimizer, owners(model))}
    optimizer.load_state_dict(optimizer.state_dict())
    assert reads["Net.bias.exp_avg"]() is optimizer.state[model.bias]["exp_avg"]
    optimizer.state.clear()
    assert reads["Net.bias.exp_avg"]() is None
    assert not optimizer.state
    del optimizer
    assert reads["Net.weight.exp_avg"]() is None


def test_what_is_kept_for_others_is_left_alone() -> None:
    model = nn.Linear(3, 2)
    assert list(states.of(stepped(model, torch.optim.AdamW), {})) == []


def test_no_parameter_is_referred_to_weakly_as_torch_then_refuses_to_move_it() -> None:
    model = nn.Linear(3, 2)
    found = list(states.of(stepped(model, torch.optim.AdamW), owners(model)))
    assert found
    assert not any(weakref.getweakrefs(p) for p in model.parameters())


def test_steps_are_counted_alike_on_all_ranks_that_hold_a_part() -> None:
    model = nn.Linear(3, 2)
    shard = Placement("dtensor S(0)", (0,), local=True, over=(0, 1, 2))
    flags = 3 | int(Flag.LOCAL)
    mine = {id(p): Owner(f"Net.{name}", Kind.STATE, shard, flags) for name, p in model.named_parameters()}
    found = {owner.name: owner for owner, _, _ in states.of(stepped(model, torch.optim.AdamW), mine)}
    assert (found["Net.weight.step"].placement.peers, found["Net.weight.step"].flags) == ((0, 1, 2), 3)
    assert (found["Net.weight.exp_avg"].placement, found["Net.weight.exp_avg"].flags) == (shard, flags)
