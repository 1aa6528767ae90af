"""Which lines of the script's own code call an operation."""

import sys

import torch
from torch import nn

from diagd.probes import spoken


def squashed(x: torch.Tensor) -> torch.Tensor:
    return torch.log(x)


class Halved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.scaled(x)
        return x / x.std(1, keepdim=True)

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return torch.atanh(x)


class Attic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rooms = nn.Sequential(nn.Linear(2, 2), Halved())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = squashed(self.rooms(x))
        return found


def of_attic(operation: str) -> list[tuple[str, int, tuple[str, ...]]]:
    attic = Attic()
    lines = [line for line in spoken.lines(operation, None) if line.file == __file__]
    del attic
    first = {"Halved.forward": Halved.forward, "Halved.scaled": Halved.scaled, "squashed": squashed}
    return [(one.function, one.line - first[one.function].__code__.co_firstlineno, one.modules) for one in lines]


def test_a_forward_method_is_looked_through_with_the_name_of_its_module() -> None:
    assert of_attic("Div") == [("Halved.forward", 2, ("Attic.rooms.1",))]
    assert of_attic("Std") == [("Halved.forward", 2, ("Attic.rooms.1",))]


def test_methods_and_functions_that_it_calls_are_looked_through_too() -> None:
    assert of_attic("Atanh") == [("Halved.scaled", 1, ("Attic.rooms.1",))]
    assert of_attic("Log") == [("squashed", 1, ("Attic",))]


def test_an_operation_that_nobody_calls_is_in_no_line() -> None:
    assert of_attic("Erfinv") == []


def test_the_functions_on_the_stack_are_looked_through_and_no_package() -> None:
    assert torch.ones(1).rsqrt() == 1.0
    (mine,) = spoken.lines("Rsqrt", sys._getframe())
    assert mine.function == "test_the_functions_on_the_stack_are_looked_through_and_no_package"
    assert mine.modules == ()
    assert spoken.lines("Rsqrt", None) == []
