"""A dictionary of a model's own tensors gives nothing back, unless it was taken in this very step."""

import copy
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from diagd.probes import itself, resuming
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

State = dict[str, torch.Tensor]


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch, recording: BoxWriter) -> Iterator[list[str]]:
    """What is told of loads from itself."""
    found: list[str] = []

    def tell(name: str, text: str, step: int | None = None) -> None:
        if name == "checkpoint/itself":
            found.append(text)

    monkeypatch.setattr(SIGNALS, "fact", tell)
    itself.forget()
    resuming.install(Probe("resuming", 0, True), sys.modules["torch.nn.modules.module"])
    yield found
    resuming.remove()
    itself.forget()


def step(number: int) -> None:
    STATE.live[Live.STEP] = number


def cloned(state: State) -> State:
    return {name: one.clone() for name, one in state.items()}


def moved(state: State) -> State:
    return {name: one.cpu() for name, one in state.items()}  # which it is on already


def test_weights_that_were_kept_as_references_give_nothing_back(facts: list[str]) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    step(20)
    best = net.state_dict()
    net.state_dict()  # another one, as for a file
    step(60)
    net.load_state_dict(best)
    (told,) = facts
    model, taken, count, names, line = told.split("|")
    assert (model, taken, count, names) == ("Sequential", "21", "4", "0.weight,0.bias,1.weight")
    assert line.endswith("\ttest_weights_that_were_kept_as_references_give_nothing_back")


def detached(state: State) -> State:
    return {name: one.detach() for name, one in state.items()}


@pytest.mark.parametrize(
    ("keep", "told"),
    [(detached, True), (copy.deepcopy, False), (cloned, False), (dict, True), (copy.copy, True), (moved, True)],
)
def test_whether_it_is_a_copy_is_known_by_where_its_tensors_lie(
    facts: list[str], keep: Callable[[State], State], told: bool
) -> None:
    net = nn.Linear(3, 4)
    best = keep(net.state_dict())
    step(9)
    net.load_state_dict(best)
    assert bool(facts) is told


def test_what_is_taken_and_loaded_in_one_step_may_have_been_filled_in_place(facts: list[str]) -> None:
    net = nn.Linear(3, 4)
    step(5)
    state = net.state_dict()
    for one in state.values():
        one.mul_(0.5)  # as an average over ranks, or a distributed checkpoint that is read into it
    net.load_state_dict(state)
    assert facts == []


def test_what_is_put_aside_without_a_copy_while_others_are_loaded_is_gone(facts: list[str]) -> None:
    net, average = nn.Linear(3, 4), nn.Linear(3, 4)
    step(30)
    aside = net.state_dict()
    net.load_state_dict(average.state_dict())
    net.load_state_dict(aside)
    (told,) = facts
    assert told.startswith("Linear|0|2|weight,bias|")
    facts.clear()
    copied = cloned(net.state_dict())
    net.load_state_dict(average.state_dict())
    net.load_state_dict(copied)
    assert facts == []


def test_a_dictionary_of_views_may_be_the_one_that_was_taken_last(facts: list[str]) -> None:
    net = nn.Linear(3, 4)
    net.state_dict()
    step(7)
    net.load_state_dict(detached(net.state_dict()))
    assert facts == []
    net.load_state_dict({name: one.data for name, one in nn.Linear(3, 4).named_parameters()})
    assert facts == []


def test_a_dictionary_that_has_the_number_of_one_that_is_gone_is_another(facts: list[str]) -> None:
    net = nn.Linear(3, 4)
    gone = net.state_dict()
    step(7)
    fresh = detached(net.state_dict())
    itself._taken["id", id(fresh["weight"])] = itself._taken["id", id(gone["weight"])]
    net.load_state_dict(fresh)
    assert facts == []


def test_another_models_weights_and_a_part_of_its_own_are_no_such_case(facts: list[str]) -> None:
    net, other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    state = other.state_dict()
    step(7)
    net.load_state_dict(state)
    mine = net.state_dict()
    step(8)
    net.load_state_dict({**mine, "1.weight": torch.zeros(2, 4)})
    assert facts == []
