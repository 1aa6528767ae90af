"""Which parameters train: what is counted in a rank, of faults and of trainings that only look like them."""

from collections.abc import Iterator

import pytest
import torch
from tests.probes.scalars import backward, clean, look, step, told
from torch import nn

from diagd.probes import losses
from diagd.probes.box.writer import BoxWriter


class Shop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(torch.relu(self.norm(self.body(x))))
        return found


class Strategy(torch.optim.Optimizer):
    """Moves parameters without any gradient."""

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter, moved in zip(group["params"], group["moved"], strict=True):
                if moved:
                    parameter.add_(0.01)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with clean():
        yield


def counted(box: BoxWriter, what: str) -> list[float]:
    found = told(box).series(0, f"parameters/{what}")
    return found.values.tolist() if found is not None else []


def train(model: nn.Module, *optimizers: torch.optim.Optimizer, steps: int = 17) -> None:
    look(model)
    for seed in range(steps):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
        step(model(x).square().mean(), *optimizers)


def test_a_training_in_order_has_nothing_to_count(recording: BoxWriter) -> None:
    model = Shop()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert counted(recording, "owned") == [6, 6, 6]
    for what in ("unowned", "without_gradient", "zero_gradient", "strangers", "random_output"):
        assert not any(counted(recording, what)), what


def test_a_head_that_was_replaced_is_unowned_and_the_old_one_idle(recording: BoxWriter) -> None:
    model = Shop()
    for old in model.head.parameters():
        old._of_this_test = True  # type: ignore[attr-defined]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.head = nn.Linear(16, 2)
    train(model, optimizer)
    assert counted(recording, "unowned") == [0, 2, 2]
    assert counted(recording, "strangers_idle") == [2, 2, 2]
    assert told(recording).fact(0, "parameters/unowned") == (16, "Shop.head.weight, Shop.head.bias")


def test_what_something_else_updates_is_not_dead_though_no_optimizer_owns_it(recording: BoxWriter) -> None:
    model = Shop()
    optimizer = torch.optim.SGD([*model.body.parameters(), *model.norm.parameters()], lr=0.1)
    look(model)
    for seed in range(17):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
        for p in model.head.parameters():
            p.data -= 0.01
        step(model(x).square().mean(), optimizer)
    assert not any(counted(recording, "unowned"))


def test_parameters_in_the_optimizer_that_the_loss_does_not_reach_have_no_gradient(recording: BoxWriter) -> None:
    class Cut(Shop):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.head(self.body(x).detach())
            return found

    model = Cut()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert counted(recording, "without_gradient") == [4, 4, 4]
    assert counted(recording, "elements_without_gradient")[-1] == pytest.approx(144 / 348)


@pytest.mark.parametrize(("moved", "dead"), [("all", [6, 0, 0]), ("head", [6, 4, 4]), ("none", [6, 6, 6])])
def test_what_an_optimizer_moves_without_gradients_is_not_dead(
    recording: BoxWriter, moved: str, dead: list[int]
) -> None:
    """As evolution strategies do it, and estimates from two values of the loss."""
    model = Shop()
    names = [name for name, _ in model.named_parameters()]
    optimizer = Strategy(model.parameters(), {"moved": [moved == "all" or name.startswith(moved) for name in names]})
    look(model)
    for _ in range(17):
        step(torch.ones(1, requires_grad=True).sum(), optimizer)
    assert counted(recording, "without_gradient") == dead


def test_a_frozen_part_that_is_cast_in_the_midst_of_training_is_told_and_one_that_was_before_is_not(
    recording: BoxWriter,
) -> None:
    model = Shop()
    model.body.requires_grad_(False).to(torch.float64)
    model.norm.requires_grad_(False)
    look(model)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    for number in range(17):
        if number == 10:
            model.norm.to(torch.bfloat16)
        step(model.head(torch.ones(2, 16)).sum(), optimizer)
    told_of = told(recording).fact(0, "dtypes/frozen")
    assert told_of == (16, "float32\tbfloat16\tShop.norm.weight,Shop.norm.bias")


def test_of_a_split_parameter_a_rank_without_a_part_is_not_one_that_does_not_train(recording: BoxWriter) -> None:
    class Split(Shop):
        def __init__(self) -> None:
            super().__init__()
            self.elsewhere = nn.ParameterList(nn.Parameter(torch.empty(0)) for _ in range(9))

    model = Split()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert counted(recording, "owned") == [6, 6, 6]
    assert not any(counted(recording, "without_gradient"))


def test_gradients_that_are_always_zero_are_counted_and_those_that_were_once_are_not(recording: BoxWriter) -> None:
    class Dark(Shop):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            found: torch.Tensor = self.head(0.0 * self.body(x) + float(self.calls > 3) * self.norm(torch.arange(16.0)))
            return found

    model = Dark()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert counted(recording, "zero_gradient")[-1] == 2
    assert told(recording).fact(0, "parameters/zero_gradient") == (16, "Dark.body.weight, Dark.body.bias")


def test_a_frozen_output_is_told_as_random_only_where_it_is(recording: BoxWriter) -> None:
    model = Shop()
    for name, p in model.named_parameters():
        p.requires_grad = "norm" in name
    train(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))
    assert counted(recording, "random_output") == [1]
    assert counted(recording, "matrices") == [0, 0, 0]
    assert told(recording).fact(0, "parameters/random_output") == (8, "Shop.head.weight")


@pytest.mark.parametrize("trained", [0.02, 3.0])
def test_a_frozen_output_that_was_loaded_is_not_random(recording: BoxWriter, trained: float) -> None:
    model = Shop()
    nn.init.normal_(model.head.weight, std=trained)
    for name, p in model.named_parameters():
        p.requires_grad = "norm" in name
    train(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))
    assert counted(recording, "frozen_output") == [1]
    assert counted(recording, "random_output") == []


def test_the_half_of_a_gan_that_is_frozen_just_now_is_no_frozen_output(recording: BoxWriter) -> None:
    model = Shop()
    first = torch.optim.SGD([*model.body.parameters(), *model.norm.parameters()], lr=0.1)
    second = torch.optim.SGD(model.head.parameters(), lr=0.1)
    look(model)
    for seed in range(17):
        model.head.requires_grad_(seed % 2 == 0)
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
        step(model(x).square().mean(), first, second)
    assert counted(recording, "frozen_output") == []


@pytest.mark.parametrize("early", [True, False])
def test_gradients_that_are_cleared_before_the_step_are_counted(recording: BoxWriter, early: bool) -> None:
    model = Shop()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    look(model)
    for seed in range(17):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
        loss = model(x).square().mean()
        if early:
            backward(loss)
            step(torch.zeros(1, requires_grad=True).sum(), optimizer)
        else:
            step(loss, optimizer)
    assert counted(recording, "cleared")[-2:] == [float(early)] * 2
    assert losses.LOSSES.given == (17 if early else 2)  # nothing is looked for once steps were seen to have gradients


def test_steps_without_any_gradient_are_counted_and_then_more_often(recording: BoxWriter) -> None:
    model = Shop()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, steps=127)
    for _ in range(17):
        step(torch.zeros(1, requires_grad=True).sum(), optimizer)  # which no parameter of the model is a part of
    assert counted(recording, "bare")[-4:] == [0.0, 6.0, 6.0, 6.0]  # at 64, and then at 128, 136 and 144
