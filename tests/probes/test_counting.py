"""Training steps from the steps of optimizers."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagd.probes.counting import FIRST_ROUND, STALE_AFTER, StepCounter


class Optimizer:
    """Stands for any."""


def test_one_optimizer_steps_as_often_as_the_training() -> None:
    counter, only = StepCounter(), Optimizer()
    assert [counter.stepped(only) for _ in range(3)] == [True] * 3
    assert counter.steps == 3


def completed(counter: StepCounter, *order: object) -> int:
    """How many training steps these steps have completed."""
    return sum(counter.stepped(optimizer) for optimizer in order)


@pytest.mark.parametrize("each", [1, 2, 3, FIRST_ROUND])
@pytest.mark.parametrize("critic_first", [True, False])
def test_of_two_optimizers_the_one_that_steps_least_counts(each: int, critic_first: bool) -> None:
    counter, critic, generator = StepCounter(), Optimizer(), Optimizer()
    order = [*[critic] * each, generator] if critic_first else [generator, *[critic] * each]
    assert sum(completed(counter, *order) for _ in range(100)) == 100
    assert completed(counter, *order) == 1
    assert counter.steps == 101


def test_many_steps_of_a_critic_for_each_of_the_generator_count_once_after_the_first_round() -> None:
    counter, critic, generator = StepCounter(), Optimizer(), Optimizer()
    completed(counter, *[critic] * 20, generator)
    assert [completed(counter, *[critic] * 20, generator) for _ in range(50)] == [1] * 50


def test_a_first_optimizer_that_trained_alone_before_has_made_these_steps() -> None:
    counter, early, late = StepCounter(), Optimizer(), Optimizer()
    assert completed(counter, *[early] * 12) == 12
    assert [completed(counter, early, early, late) for _ in range(20)][1:] == [1] * 19


def test_an_optimizer_for_each_parameter_makes_one_step_of_all() -> None:
    counter, many = StepCounter(), [Optimizer() for _ in range(100)]
    for optimizer in many:  # the first round: they are seen one after the other
        counter.stepped(optimizer)
    before = counter.steps
    for _ in range(10):
        assert [counter.stepped(optimizer) for optimizer in many] == [False] * 99 + [True]
    assert counter.steps == before + 10


def test_an_optimizer_that_appears_later_begins_where_the_training_is() -> None:
    counter, early, late = StepCounter(), Optimizer(), Optimizer()
    for _ in range(50):
        counter.stepped(early)
    for _ in range(3):
        counter.stepped(early)
        counter.stepped(late)
    assert counter.steps in (53, 54)


def test_an_optimizer_that_no_longer_steps_holds_nothing_up_for_long() -> None:
    counter, warm_up, main = StepCounter(), Optimizer(), Optimizer()
    for _ in range(5):
        counter.stepped(warm_up)
        counter.stepped(main)
    for _ in range(STALE_AFTER + 5):
        counter.stepped(main)
    assert counter.steps >= 5 + STALE_AFTER
    assert counter.stepped(main)


def test_an_optimizer_that_is_gone_holds_nothing_up() -> None:
    counter, main = StepCounter(), Optimizer()
    gone = Optimizer()
    counter.stepped(gone)
    counter.stepped(main)
    del gone
    counter.stepped(main)
    assert counter.stepped(main)


@given(st.lists(st.integers(0, 5), max_size=300))
def test_steps_never_go_back_and_never_pass_the_busiest(order: list[int]) -> None:
    counter, optimizers = StepCounter(), [Optimizer() for _ in range(6)]
    last = 0
    for number in order:
        over = counter.stepped(optimizers[number])
        assert over == (counter.steps > last)
        last = counter.steps
    assert last <= len(order)


class Walked(dict[int, Any]):
    """Counts the entries that are gone through."""

    passed = 0

    def values(self) -> Iterator[Any]:  # type: ignore[override]
        for value in super().values():
            self.passed += 1
            yield value

    def items(self) -> Iterator[tuple[int, Any]]:  # type: ignore[override]
        yield from ((key, self[key]) for key in self)

    def __iter__(self) -> Iterator[int]:
        for key in super().__iter__():
            self.passed += 1
            yield key


@pytest.mark.parametrize("count", [2, 20, 2000])
def test_many_optimizers_cost_no_more_each_than_few(count: int) -> None:
    counter, many = StepCounter(), [Optimizer() for _ in range(count)]
    for optimizer in many:
        counter.stepped(optimizer)
    counter._counts = walked = Walked(counter._counts)
    rounds = 20
    for _ in range(rounds):
        for optimizer in many:
            counter.stepped(optimizer)
    assert counter.steps == rounds + 1
    assert 0 < walked.passed <= 2 * rounds * count
