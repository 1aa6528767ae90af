"""Norms, losses and rates as a rank takes them: right to the last digit, at the right step, and without a trace."""

import copy
import gc
import math
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.probes.scalars import backward, clean, look, series, step, told
from torch import nn

from diagd.probes import norms
from diagd.probes.box.writer import BoxWriter


class Barn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wall = nn.Linear(6, 8)
        self.roof = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.roof(torch.tanh(self.wall(x)))
        return found


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with clean():
        yield


def loss_of(model: nn.Module, seed: int) -> torch.Tensor:
    found: torch.Tensor = model(torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))).square().mean()
    return found


def test_the_norms_are_those_of_the_gradients_that_the_optimizer_is_given(recording: BoxWriter) -> None:
    model = Barn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    look(model)
    wanted, each = [], []
    for seed in range(4):
        optimizer.zero_grad()
        loss = loss_of(model, seed)
        twin = copy.deepcopy(model)
        loss_of(twin, seed).backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in twin.parameters() if p.grad is not None]
        wanted.append(math.sqrt(sum(float(g.double().square().sum()) for g in gradients)))
        each.append(float(gradients[0].norm()))
        step(loss, optimizer)
    found = series(recording, "grad_norm")
    assert found.steps.tolist() == [1, 2, 3, 4]
    assert found.values.tolist() == pytest.approx(wanted, rel=1e-5)
    assert series(recording, "grad_norm/Barn.wall.weight").values.tolist() == pytest.approx(each, rel=1e-5)


def test_an_update_is_what_the_step_has_changed(recording: BoxWriter) -> None:
    model = Barn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    look(model)
    step(loss_of(model, 0), optimizer)
    before = copy.deepcopy(model)
    step(loss_of(model, 1), optimizer)
    change = (model.wall.weight - before.wall.weight).norm().item()
    assert series(recording, "update_norm/Barn.wall.weight").values[0] == pytest.approx(change, rel=1e-4)
    assert series(recording, "param_norm/Barn.wall.weight").values[0] == pytest.approx(
        before.wall.weight.norm().item(), rel=1e-5
    )


def test_a_large_parameter_is_taken_in_part_and_its_norms_are_estimated(recording: BoxWriter) -> None:
    model = nn.Sequential(nn.Linear(400, 400, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    look(model)
    for seed in range(2):
        before = copy.deepcopy(model)
        step(model(torch.randn(8, 400, generator=torch.Generator().manual_seed(seed))).square().mean(), optimizer)
    change = (model[0].weight - before[0].weight).norm().item()  # type: ignore[operator]
    assert series(recording, "update_norm/Sequential.0.weight").values[0] == pytest.approx(change, rel=0.1)


def test_training_is_the_same_to_the_last_bit(recording: BoxWriter) -> None:
    model = Barn()
    twin = copy.deepcopy(model)
    watched, alone = (torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, twin))
    look(model)
    for seed in range(20):
        step(loss_of(model, seed), watched)
        alone.zero_grad()
        loss_of(twin, seed).backward()  # type: ignore[no-untyped-call]
        alone.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    assert len(series(recording, "loss")) == 20


def test_the_loss_of_a_step_is_the_mean_of_its_passes_and_keeps_nan(recording: BoxWriter) -> None:
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    backward(weight * 1.0)
    backward(weight * 2.0)
    step(weight * 6.0, optimizer, clear=False)
    step(weight * math.nan, optimizer)
    found = series(recording, "loss").values.tolist()
    assert found[0] == 3.0
    assert math.isnan(found[1])
    assert told(recording).fact(0, "loss/dtype") == (1, "float32")


def test_the_gradients_of_half_precision_do_not_overflow_in_their_norm(recording: BoxWriter) -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    step((weight * 60000).float().sum(), optimizer)
    assert series(recording, "grad_norm").values[0] == pytest.approx(120000, rel=1e-2)


def test_a_rate_is_told_when_it_changes_and_now_and_then(recording: BoxWriter) -> None:
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([{"params": [weight], "lr": 0.5}, {"params": [], "lr": 9.0}])
    for number in range(1, 20):
        if number == 5:
            optimizer.param_groups[0]["lr"] = 0.25
        step(weight * 1.0, optimizer)
    found = series(recording, "lr/0")
    assert list(zip(found.steps, found.values, strict=True)) == [(1, 0.5), (5, 0.25), (16, 0.25)]
    assert "lr/1" not in told(recording).names(0)


def test_gradients_that_are_cleared_in_any_way_are_not_kept(recording: BoxWriter) -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    clears: list[Callable[[], object]] = [
        lambda: optimizer.zero_grad(),
        lambda: optimizer.zero_grad(set_to_none=False),
        lambda: setattr(weight, "grad", None),
        lambda: weight.grad.mul_(0.5) if weight.grad is not None else None,
    ]
    step(weight.sum(), optimizer)
    for clear in clears:
        clear()
        step(weight.sum(), optimizer, clear=False)
    assert series(recording, "gradients/kept").values.tolist() == [0, 0, 0, 0]


def test_gradients_that_are_not_cleared_are_kept_also_over_several_passes(recording: BoxWriter) -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    step(weight.sum(), optimizer)
    step(weight.sum(), optimizer, clear=False)
    backward(weight.sum())
    step(weight.sum(), optimizer, clear=False)
    assert series(recording, "gradients/kept").values.tolist() == [1, 1]


def test_one_half_of_a_gan_that_waits_is_no_keeping(recording: BoxWriter) -> None:
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 1)
    first, second = (torch.optim.SGD(m.parameters(), lr=0.01) for m in (generator, critic))
    for _ in range(4):
        second.zero_grad()
        backward(critic(generator(torch.ones(1, 2)).detach()).sum())
        norms._before(second)
        second.step()
        norms._after(second)
        step(critic(generator(torch.ones(1, 2))).sum(), first)
    assert not series(recording, "gradients/kept").values.any()


def test_what_the_script_lets_go_of_is_not_kept_alive(recording: BoxWriter) -> None:
    model = Barn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    look(model)
    for seed in range(9):
        step(loss_of(model, seed), optimizer)
    weight, gradient = weakref.ref(model.wall.weight), weakref.ref(model.wall.weight.grad)
    optimizer.zero_grad()
    assert gradient() is None
    del model, optimizer
    gc.collect()
    assert weight() is None


def test_passes_become_seldom_where_they_cost_too_much_of_a_step() -> None:
    one = norms._Optimizer(torch.optim.SGD([torch.ones(1)]), 0)
    one.step_ns = 1_000_000
    one.spent(3_000)
    assert one.every == 1
    one.cost_ns = 0
    one.spent(9_000)
    assert one.every == 4
    for _ in range(60):
        one.spent(900_000_000)
    assert one.every == norms.MAX_EVERY


def test_no_parameter_is_referred_to_weakly_as_torch_then_refuses_to_move_it(recording: BoxWriter) -> None:
    model = Barn()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    look(model)
    for seed in range(9):
        step(loss_of(model, seed), optimizer)
    assert not any(weakref.getweakrefs(p) for p in model.parameters())
    assert len(series(recording, "grad_norm")) >= 8
