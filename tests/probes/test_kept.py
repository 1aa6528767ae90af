"""Whether gradients are cleared, seen by a few of them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from diagd.probes import kept
from diagd.probes.kept import WATCHED, Kept, Site
from diagd.probes.places import places


class Optimizer:
    """Holds parameters as torch's do."""

    def __init__(self, count: int, frozen: int = 0) -> None:
        self.parameters = [SimpleNamespace(grad=None if n < frozen else gradient(), _version=0) for n in range(count)]
        self.param_groups = [{"params": self.parameters}]


def gradient() -> Any:
    return SimpleNamespace(_version=0)


def accumulated(optimizer: Optimizer) -> None:
    for parameter in optimizer.parameters:
        if parameter.grad is not None:
            parameter.grad._version += 1


def step(watch: Kept, optimizer: Optimizer, cleared: bool, number: int = 0) -> float | None:
    """A backward pass and a step: the next one, if none is said."""
    number = number or watch._step + 1
    if cleared:
        for parameter in optimizer.parameters:
            parameter.grad = gradient() if parameter.grad is not None else None
    watch.before_backward(number)
    accumulated(optimizer)
    watch.after_backward()
    found = watch.before_step()
    watch.after_step(optimizer, number)
    return found


def test_gradients_in_whose_place_others_are_put_before_the_step_are_not_kept() -> None:
    """As a shard's, which is cut out of what all have reduced."""
    watch, optimizer = Kept(), Optimizer(3)
    watch.after_step(optimizer, 1)
    for number in range(2, 6):
        watch.before_backward(number)
        watch.after_backward()
        for parameter in optimizer.parameters:
            parameter.grad = gradient()
        assert watch.before_step() == 0.0
        watch.after_step(optimizer, number)


@pytest.mark.parametrize("frozen", [0, 17])
def test_gradients_that_are_cleared_are_told_from_those_that_are_not(frozen: int) -> None:
    watch, optimizer = Kept(), Optimizer(20, frozen)
    step(watch, optimizer, cleared=True)
    assert [step(watch, optimizer, cleared) for cleared in (True, False, False, True)] == [0, 1, 1, 0]


def test_all_parameters_are_looked_through_only_when_a_watched_one_has_no_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []

    def look(optimizer: Any) -> Any:
        looked.append(1)
        return places(optimizer)

    monkeypatch.setattr(kept, "places", look)
    watch, optimizer = Kept(), Optimizer(20)
    for _ in range(10):
        step(watch, optimizer, cleared=True)
    assert len(looked) == 1
    optimizer.parameters[0].grad = None
    step(watch, optimizer, cleared=False)
    assert len(looked) == 2
    assert len(watch._watched) == WATCHED


def test_of_a_step_looked_at_by_itself_gradients_that_are_none_are_known_to_be_cleared() -> None:
    watch, optimizer = Kept(), Optimizer(20)
    step(watch, optimizer, cleared=True)
    for parameter in optimizer.parameters:
        parameter.grad = None
    watch.before_backward(9)
    for parameter in optimizer.parameters:
        parameter.grad = gradient()
    assert (watch.before_step(), watch.unsure) == (0, False)


@pytest.mark.parametrize("cleared", [True, False])
def test_where_there_are_some_the_step_after_it_tells(cleared: bool) -> None:
    watch, optimizer = Kept(), Optimizer(20)
    step(watch, optimizer, cleared=True)
    assert (step(watch, optimizer, cleared, 9), watch.unsure) == (None, True)
    assert (step(watch, optimizer, cleared, 10), watch.unsure) == (0 if cleared else 1, False)
    assert step(watch, optimizer, cleared, 17) is None


LINE = ("/job/train.py", 31)


def micro_steps(
    watch: Kept,
    optimizer: Optimizer,
    cleared: bool,
    sites: Sequence[Site] = (LINE, LINE),
    perturbed: bool = False,
    combined: bool = False,
) -> float | None:
    """A step of some backward passes, with or without clearing before each."""
    for site in sites:
        for parameter in optimizer.parameters if perturbed else ():
            parameter._version += 1
        if cleared:
            for parameter in optimizer.parameters:
                parameter.grad = None
        watch.before_backward(9, site)
        for parameter in optimizer.parameters:
            parameter.grad = gradient() if parameter.grad is None else parameter.grad
        watch.after_backward()
    for parameter in optimizer.parameters if combined else ():
        parameter.grad = gradient()
    found = watch.discards()
    watch.after_step(optimizer, 9)
    return found


def test_gradients_that_are_cleared_before_a_step_has_used_them_were_for_nothing() -> None:
    watch, optimizer = Kept(), Optimizer(20)
    step(watch, optimizer, cleared=True)
    assert micro_steps(watch, optimizer, cleared=True) == 0.5
    assert micro_steps(watch, optimizer, cleared=False) == 0.0
    assert micro_steps(watch, optimizer, cleared=True, sites=(LINE,)) is None


def test_passes_that_were_cleared_together_all_count() -> None:
    """The step is made at one batch of four, the gradients are cleared at another."""
    watch, optimizer = Kept(), Optimizer(20)
    step(watch, optimizer, cleared=True)
    for number in range(1, 9):
        watch.before_backward(9, LINE)
        for parameter in optimizer.parameters:
            parameter.grad = gradient() if parameter.grad is None else parameter.grad
        watch.after_backward()
        if number % 4 == 0:
            found = watch.discards()
            watch.after_step(optimizer, 9)
        if number % 4 == 3:
            for parameter in optimizer.parameters:
                parameter.grad = None
    assert found == 0.75


def test_gradients_that_perturb_the_weights_or_are_combined_from_copies_were_used() -> None:
    """As sharpness-aware minimisation does, and what projects the gradients of several tasks."""
    watch, optimizer = Kept(), Optimizer(20)
    step(watch, optimizer, cleared=True)
    assert micro_steps(watch, optimizer, cleared=True, perturbed=True) == 0.0
    assert micro_steps(watch, optimizer, cleared=True, combined=True) == 0.0


def test_other_lines_and_the_steps_of_other_optimizers_are_no_micro_batches() -> None:
    watch, optimizer, other = Kept(), Optimizer(20), Kept()
    step(watch, optimizer, cleared=True)
    assert micro_steps(watch, optimizer, cleared=True, sites=(LINE, ("/job/train.py", 40))) == 0.0
    watch.before_backward(9, LINE)  # the generator's: it leaves gradients in the discriminator
    optimizer.parameters[0].grad = gradient()
    watch.after_backward()
    other.after_step(optimizer, 9)
    assert micro_steps(watch, optimizer, cleared=True, sites=(LINE,)) == 0.0


def test_the_number_of_passes_is_told_when_it_changes() -> None:
    watch, optimizer, told = Kept(), Optimizer(3), []
    watch.after_step(optimizer, 1)
    for number, passes in enumerate([1, 1, 4, 4, 1], 2):
        for _ in range(passes):
            watch.before_backward(number)
            watch.after_backward()
        told.append(watch.passes())
        watch.after_step(optimizer, number)
    assert told == [1, 0, 4, 0, 1]
