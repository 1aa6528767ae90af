"""At which training steps probes look, and at which optimizers."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from diagd.probes import cost, turns
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.budget import BUDGET
from diagd.probes.guard import MAX_ERRORS, Probe
from diagd.probes.state import STATE


class Looks:
    """Counts steps as their probe does, and notes what a probe that waits for some was given."""

    def __init__(self, every: int = 4) -> None:
        self.every = every
        self.completes = True
        self.seen: list[tuple[str, int]] = []
        self.given: list[Any] = []

    def count(self, _: Any) -> None:
        if self.completes:
            STATE.live[Live.STEP] = max(STATE.live[Live.STEP], 0) + 1

    def following(self, step: int) -> int:
        return turns.next_multiple(step, self.every)

    def before(self, subject: Any) -> None:
        self.seen.append(("before", max(STATE.live[Live.STEP], 0) + 1))
        self.given.append(subject)

    def after(self, subject: Any) -> None:
        self.seen.append(("after", max(STATE.live[Live.STEP], 0)))

    def passing(self, roots: Any) -> None:
        self.seen.append(("pass", max(STATE.live[Live.STEP], 0) + 1))


@pytest.fixture
def looks(recording: BoxWriter) -> Iterator[Looks]:
    found = Looks()
    counter, probe = Probe("steps", 0, True), Probe("some", 1, True)
    turns.TURNS.forget()
    turns.join_every(counter, lambda _: None, found.count)
    turns.join(probe, found.following, before=found.before, after=found.after, passing=found.passing)
    yield found
    turns.leave(counter)
    turns.leave(probe)
    assert not turns._hooks


def made() -> torch.optim.Optimizer:
    parameter = nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return torch.optim.SGD([parameter], lr=0.1)


def test_a_probe_looks_at_the_first_step_and_then_at_those_that_it_waits_for(looks: Looks) -> None:
    optimizer = made()
    for _ in range(9):
        turns.before_pass(None)
        optimizer.step()
    assert [step for what, step in looks.seen if what == "before"] == [1, 4, 8]
    assert looks.seen == [(what, step) for step in (1, 4, 8) for what in ("pass", "before", "after")]


def test_another_optimizer_is_met_at_once_by_all(looks: Looks) -> None:
    first, second = made(), made()
    first.step()
    second.step()
    assert looks.given == [first, second]
    first.step()
    assert looks.given == [first, second]


def test_all_optimizers_of_a_step_are_looked_at(looks: Looks) -> None:
    first, second = made(), made()
    for _ in range(4):
        looks.completes = False
        first.step()
        looks.completes = True
        second.step()
    assert looks.given == [first, second, first, second]
    assert looks.seen[-1] == ("after", 4)


def test_steps_that_an_engine_counts_after_them_are_waited_for_all_the_same(looks: Looks) -> None:
    optimizer = made()
    looks.completes = False
    for _ in range(9):
        optimizer.step()
        looks.completes = True
        looks.count(None)
        looks.completes = False
    assert [step for what, step in looks.seen if what == "before"] == [1, 4, 8]


def test_a_probe_that_is_woken_looks_at_the_next_step(looks: Looks) -> None:
    optimizer = made()
    optimizer.step()
    turns.TURNS.all[-1].wake()
    optimizer.step()
    optimizer.step()
    assert [step for what, step in looks.seen if what == "before"] == [1, 2]


def test_a_forked_child_meets_its_optimizers_anew(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = made()
    optimizer.step()
    with monkeypatch.context() as patch:
        patch.setattr(STATE, "box", None)
        turns._at_switch(False)
    optimizer.step()
    assert looks.given == [optimizer, optimizer]


def test_a_probe_that_fails_is_switched_off_and_the_others_go_on(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise ValueError("broken")

    probe = Probe("bad", 2, True)
    turns.join(probe, lambda step: step + 1, before=fail)
    optimizer = made()
    for _ in range(8):
        optimizer.step()
    turns.leave(probe)
    assert (probe.errors, probe.on) == (MAX_ERRORS, False)
    assert [step for what, step in looks.seen if what == "before"] == [1, 4, 8]


def test_what_the_looks_take_is_counted(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(cost, "_clock", lambda: next(clock))
    made().step()
    assert STATE.live[Live.OVERHEAD_NS] == 2000


def test_ranks_of_which_one_samples_less_meet_at_the_steps_of_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(stride: int) -> set[int]:
        monkeypatch.setattr(BUDGET, "stride", stride)
        found, step = set(), 1
        while step < 640:  # as far as all go
            found.add(step := turns.sampled(step, 4))
        return found

    rare, some, often = (steps(stride) for stride in (8, 2, 1))
    assert rare < some < often
    assert min(rare) == 32


def test_nothing_is_hooked_before_the_optimizers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.optim.optimizer")
    probe = Probe("losses", 3, True)
    turns.join(probe, turns.small, passing=lambda _: None)
    turns.leave(probe)
