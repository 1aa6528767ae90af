"""Where a loss that is not finite got it from, as its graph shows."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.probes.scalars import backward, clean, look, told
from torch import nn
from torch.utils.checkpoint import checkpoint

from diagd.probes import fed, origin
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter


class House(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cellar = nn.Linear(4, 4)
        self.stairs = nn.Linear(4, 4)
        self.attic = nn.Linear(4, 2)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    origin.ORIGIN.__init__()  # type: ignore[misc]
    fed.FED.__init__()  # type: ignore[misc]
    with clean():
        yield


def ones() -> torch.Tensor:
    return torch.ones(3, 4)


def log_of_zero(house: House) -> torch.Tensor:
    height = torch.log(torch.relu(house.stairs(house.cellar(ones()))) * 0)
    found: torch.Tensor = house.attic(height - height).mean()
    return found


def no_labels(house: House) -> torch.Tensor:
    mask = torch.zeros(3)
    found: torch.Tensor = (house.attic(house.cellar(ones())).sum(1) * mask).sum() / mask.sum()
    return found


def masked_labels(house: House) -> torch.Tensor:
    scores = house.attic(house.stairs(ones()))
    return nn.functional.cross_entropy(scores, torch.full((3,), -100))


def weighted_logarithm(house: House) -> torch.Tensor:
    """A constant comes first, so that its product keeps the constant alone."""
    chance = torch.softmax(house.attic(torch.tensor([[1e6] * 4, [1.0] * 4])), -1)
    found: torch.Tensor = -(torch.tensor([[0.5, 0.5], [0.5, 0.5]]) * torch.log(chance)).sum(-1).mean()
    return found


def product_beyond_the_end(house: House) -> torch.Tensor:
    room = house.stairs(ones())
    found: torch.Tensor = -((room * 0 + 1e30) * (room * 0 + 1e30)).sum()
    return found


class Halved(torch.autograd.Function):
    """Keeps nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * float("nan")

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


def own_function(house: House) -> torch.Tensor:
    halved: Any = Halved.apply
    found: torch.Tensor = -halved(house.stairs(ones())).mean()
    return found


def negated_nan(house: House) -> torch.Tensor:
    """Nothing in the graph can have made it."""
    found: torch.Tensor = -(house.stairs(ones()) + float("nan")).mean()
    return found


def root_below_zero(house: House) -> torch.Tensor:
    height = torch.sqrt(house.stairs(ones()) * 0 - 1)
    found: torch.Tensor = torch.relu(house.attic(height)).mean()
    return found


def behind_a_softmax(made: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[House], torch.Tensor]:
    """Made some operations before one that hands it on and keeps its own result."""

    def loss(house: House) -> torch.Tensor:
        room = house.stairs(house.cellar(torch.rand(3, 4)))
        found: torch.Tensor = house.attic(torch.softmax(made(room) / 2.0, -1) * room).mean()
        return found

    return loss


def masked_row(house: House) -> torch.Tensor:
    score = house.stairs(ones()) + torch.tensor([[0.0] * 4, [float("-inf")] * 4, [0.0] * 4])
    found: torch.Tensor = house.attic(torch.softmax(score, -1)).mean()
    return found


def bad_batch(house: House) -> torch.Tensor:
    found: torch.Tensor = house.attic(house.stairs(torch.full((3, 4), float("nan")))).mean()
    return found


def with_targets(made: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[House], torch.Tensor]:
    """The scores are finite, and what they are held against is not."""
    return lambda house: made(house.attic(house.stairs(ones())), torch.full((3, 2), float("nan")))


def bad_weight(house: House) -> torch.Tensor:
    with torch.no_grad():
        house.stairs.weight[0, 0] = float("inf")
    found: torch.Tensor = house.attic(torch.tanh(house.stairs(torch.tanh(house.cellar(ones()))))).mean() * float("nan")
    return found


@pytest.mark.parametrize(
    ("loss", "operation", "behind", "why"),
    [
        (log_of_zero, "Log", "House.stairs", "a logarithm of 0"),
        (no_labels, "Div", "House.attic", "a division by 0"),
        (masked_labels, "NllLoss", "House.attic", "a mean over no labels"),
        (behind_a_softmax(lambda a: a / (a - a).abs().sum().sqrt()), "Div", "House.stairs", "a division by 0"),
        (behind_a_softmax(lambda a: a - torch.log(a.mean() * 0 - 1)), "Log", "House.stairs", "a logarithm of a number"),
        (behind_a_softmax(lambda a: a / (a.detach() - a)), "Div", "House.stairs", "a division by 0"),
        (
            behind_a_softmax(lambda a: a + float("nan")),
            "Softmax",
            "House.stairs",
            "first seen in the result of Softmax",
        ),
        (masked_row, "Softmax", "House.stairs", "first seen in the result of Softmax"),
        (weighted_logarithm, "Log", "House.attic", "a logarithm of 0"),
        (product_beyond_the_end, "Mul", "House.stairs", "a product too large"),
        (own_function, "Halved", "House.stairs", "the result of Halved"),
        (negated_nan, "", "House.stairs", ""),
        (root_below_zero, "Sqrt", "House.stairs", "the result of Sqrt"),
        (bad_batch, "input", "House.stairs", ""),
        (bad_weight, "weight", "House.stairs", ""),
        (with_targets(nn.functional.mse_loss), "input", "House.attic", ""),
        (with_targets(lambda scores, targets: (scores * targets).mean()), "input", "House.attic", ""),
        (with_targets(lambda scores, targets: (targets * scores).mean()), "input", "House.attic", ""),
        (
            with_targets(lambda scores, targets: (targets - scores).abs().mean()),
            "Abs",
            "House.attic",
            "first seen in what",
        ),
        (with_targets(lambda scores, targets: torch.where(scores > 9, scores, targets).sum()), "", "House.attic", ""),
    ],
)
def test_the_operation_is_named_with_the_parameters_behind_it(
    recording: BoxWriter, loss: Callable[[House], torch.Tensor], operation: str, behind: str, why: str
) -> None:
    house = House()
    look(house)
    backward(loss(house))
    fact = told(recording).fact(0, "nonfinite/origin")
    assert fact is not None
    said, names, computed = fact[1].split("\t")
    assert (fact[0], said) == (1, operation)
    assert names.startswith(behind)
    assert len(set(names.split(", "))) == len(names.split(", "))
    assert computed.startswith(why)
    assert bool(computed) == bool(why)


def place_of(recording: BoxWriter, loss: Callable[[House], torch.Tensor]) -> list[str]:
    """File, line, function, modules and what is there, as they are told of the one line."""
    house = House()
    look(house)
    backward(loss(house))
    fact = told(recording).fact(0, "nonfinite/places")
    assert fact is not None
    return fact[1].split("\t")


def test_the_line_that_calls_the_operation_is_told_with_its_function(recording: BoxWriter) -> None:
    file, line, function, modules, what = place_of(recording, log_of_zero)
    start = log_of_zero.__code__.co_firstlineno
    assert (file, function, modules, what) == (__file__, "log_of_zero", "", "calls")
    assert int(line) == start + 1


def test_the_line_that_called_backward_is_told_where_the_operation_is_in_none(recording: BoxWriter) -> None:
    assert place_of(recording, bad_batch)[-1] == "backward"


class Norm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
        return found


@pytest.mark.parametrize(
    ("bad", "kept", "said"), [(False, True, "made"), (True, True, "input"), (False, False, "input")]
)
def test_what_the_model_made_of_finite_data_did_not_come_in_with_them(
    recording: BoxWriter, bad: bool, kept: bool, said: str
) -> None:
    house = nn.Sequential(Norm(), nn.Linear(4, 2))
    look(house)
    batch = torch.full((3, 4), float("nan")) if bad else ones()
    fed.take(torch, (batch,), {})
    loss = house(batch).mean()
    if not kept:
        del batch
    backward(loss)
    origin_of, places = (told(recording).fact(0, f"nonfinite/{what}") for what in ("origin", "places"))
    assert origin_of is not None
    assert places is not None
    assert origin_of[1].split("\t")[0] == said
    if said == "made":
        (place,) = {tuple(line.split("\t")) for line in places[1].splitlines()}
        assert (int(place[1]), place[2]) == (Norm.forward.__code__.co_firstlineno + 1, "Norm.forward")
        assert place[-1] == "calls"


def test_data_of_which_not_all_was_seen_may_hold_it(recording: BoxWriter) -> None:
    fed.take(torch, ({"x": ones()}, ones()), {})
    assert not fed.was_finite(torch)
    batch = ones()
    fed.take(torch, (torch.arange(3),), {"x": batch})
    assert fed.was_finite(torch)


class Signed(torch.autograd.Function):
    """Keeps things by names that nodes of torch's own have methods for."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.name, ctx.variable = "signed", "x"
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


def test_functions_of_the_scripts_own_may_keep_what_they_like(recording: BoxWriter) -> None:
    house = House()
    look(house)
    sign: Any = Signed.apply
    backward(sign(torch.log(sign(house.stairs(ones())) * 0)).mean())
    fact = told(recording).fact(0, "nonfinite/origin")
    assert fact is not None
    assert fact[1].split("\t")[0] == "Log"


def test_weights_whose_memory_was_taken_away_are_not_read(recording: BoxWriter) -> None:
    """As FSDP does after the forward pass."""
    house = House()
    look(house)
    loss = house.attic(house.stairs(torch.full((3, 4), float("nan")))).mean()
    for weight in (house.stairs.weight, house.attic.weight):
        weight.untyped_storage().resize_(0)
    origin.look(loss, 1)
    fact = told(recording).fact(0, "nonfinite/origin")
    assert fact is not None
    assert fact[1].split("\t")[0] == "input"


def test_of_a_distributed_weight_only_the_part_that_lies_here_is_read(
    recording: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DTensor(torch.Tensor):
        """To ask it as a whole would be a collective."""

        _local_tensor = torch.ones(2)

    weight = torch.ones(2, requires_grad=True).as_subclass(DTensor)
    asked: set[type] = set()
    isfinite = torch.isfinite

    def asking(tensor: torch.Tensor) -> torch.Tensor:
        asked.add(type(tensor))
        return isfinite(tensor)

    monkeypatch.setattr(torch, "isfinite", asking)
    monkeypatch.setattr("diagd.probes.graph.leaves", lambda root: [weight])
    origin.look((torch.ones(2, requires_grad=True) * float("nan")).sum(), 1)
    assert asked
    assert asked <= {torch.Tensor, nn.Parameter}


def test_what_a_checkpoint_has_not_kept_is_not_made_again(recording: BoxWriter) -> None:
    house, calls = House(), []

    def inner(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        found: torch.Tensor = torch.log(house.stairs(x) * 0 - 1)
        return found

    backward(checkpoint(inner, house.cellar(ones()), use_reentrant=False).mean())
    assert len(calls) == 2  # the forward pass, and the backward pass's own
    assert told(recording).fact(0, "nonfinite/origin") is not None


def test_a_finite_loss_is_not_looked_into_and_others_seldom(recording: BoxWriter) -> None:
    house = House()
    backward(house.attic(ones()).mean())
    assert told(recording).fact(0, "nonfinite/origin") is None
    for step in range(1, origin.LOOKS + 4):
        recording.live[Live.STEP] = 10 * step
        for _ in range(origin.OVER):
            backward(house.attic(ones()).mean())
        backward(no_labels(house))
    assert origin.ORIGIN.looks == origin.LOOKS


@pytest.mark.parametrize("later", [1, 5])  # not each step is looked at
def test_of_a_stretch_of_such_losses_the_first_is_told(recording: BoxWriter, later: int) -> None:
    house = House()
    look(house)
    backward(no_labels(house))
    recording.live[Live.STEP] = later
    with torch.no_grad():
        house.attic.weight.fill_(float("nan"))
    backward(no_labels(house))
    fact = told(recording).fact(0, "nonfinite/origin")
    assert fact is not None
    assert (fact[0], fact[1].partition("\t")[0]) == (1, "Div")
