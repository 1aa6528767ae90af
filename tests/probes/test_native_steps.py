"""Steps and backward passes by both ways, Python's and the compiled one: the same numbers in the box."""

import gc
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from diagd.probes import autocast, backward, cost, losses, origin, overflow, steps, turns
from diagd.probes.box.layout import Live, Phase
from diagd.probes.box.writer import BoxWriter
from diagd.probes.budget import BUDGET
from diagd.probes.fast import FAST, Fast, forget
from diagd.probes.guard import Probe
from diagd.probes.native import load
from diagd.probes.settings import Settings
from diagd.probes.state import STATE

WAYS = ("python", "native")
NUMBERS = (Live.STEP, Live.BACKWARDS, Live.OPTIMIZER_STEPS, Live.PHASE, Live.BACKWARD_SITE)


class Training:
    """A training in this process with the probes of steps and backward passes, by one of the ways."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.parameter = nn.Parameter(torch.ones(3))
        self.optimizer = torch.optim.SGD([self.parameter], lr=0.1)
        self.rows: list[tuple[int, ...]] = []

    def wait_for(self, every: int) -> None:
        probe = Probe("some", 5, True)
        turns.join(probe, lambda step: turns.next_multiple(step, every), before=lambda _: self.seen.append(self.step))

    @property
    def step(self) -> int:
        return int(max(STATE.live[Live.STEP], 0)) + 1

    def note(self) -> None:
        self.rows.append((*(STATE.live[number] for number in NUMBERS), STATE.backward_depth))

    def round(self, *optimizers: torch.optim.Optimizer) -> None:
        loss = (self.parameter * 2).sum()
        torch.autograd.backward(loss)
        self.note()
        for optimizer in optimizers or (self.optimizer,):
            optimizer.step()
            self.note()


@contextmanager
def installed(name: str) -> Iterator[None]:
    """The probes, by one of the ways."""
    STATE.settings = Settings(STATE.settings.folder, native=name == "native")
    assert name == "python" or load.library() is not None, "no compiler has built it: see the README"
    steps.PROGRESS.__init__()  # type: ignore[misc]
    overflow.forget()
    autocast.REGION.__init__()  # type: ignore[misc]
    turns.TURNS.forget()
    forget()
    cost.forget()
    parts = [Probe("steps", 0, True), Probe("backward", 1, True)]
    steps.install(parts[0], sys.modules["torch.optim.optimizer"])
    backward.install(parts[1], torch.autograd)
    yield
    backward.remove()
    steps.remove()
    for turn in list(turns.TURNS.all):
        turns.leave(turn.probe)
    assert [part.errors for part in parts] == [0, 0]
    cost.forget()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, recording: BoxWriter) -> Iterator[str]:
    with installed(request.param):
        yield request.param


def test_plain_steps_count_and_their_phases_follow_each_other(way: str) -> None:
    training = Training()
    for _ in range(40):
        training.round()
    assert (STATE.live[Live.STEP], STATE.live[Live.OPTIMIZER_STEPS], STATE.live[Live.BACKWARDS]) == (40, 40, 40)
    assert {row[3] for row in training.rows[0::2]} == {Phase.OTHER}
    assert {row[3] for row in training.rows[1::2]} == {Phase.FORWARD}
    assert STATE.live[Live.STEP_NS] == STATE.live[Live.STEP_STARTED_NS] > 0
    assert STATE.live[Live.PHASE_TOTALS + Phase.OPTIMIZER] > 0
    assert STATE.live[Live.BACKWARD_SITE] > 0
    assert FAST[Fast.PLAIN] == (way == "native")
    assert (FAST[Fast.PENDING] > 0) == (way == "native")


def test_what_waits_for_a_step_is_called_at_it(way: str) -> None:
    training = Training()
    training.round()
    training.wait_for(7)
    for _ in range(30):
        training.round()
    assert training.seen == [2, 7, 14, 21, 28]


def test_another_optimizer_is_counted_with_the_first(way: str) -> None:
    training = Training()
    for _ in range(20):
        training.round()
    other = torch.optim.SGD([training.parameter], lr=0.1)
    for _ in range(20):
        training.round(training.optimizer, other)
    assert STATE.live[Live.STEP] in (40, 41)
    assert STATE.live[Live.OPTIMIZER_STEPS] == 60
    before = STATE.live[Live.STEP]
    training.round(training.optimizer)
    assert STATE.live[Live.STEP] == before


def test_one_that_takes_the_place_of_one_that_is_gone_is_met(way: str) -> None:
    training = Training()
    training.wait_for(1000)
    for _ in range(10):
        training.round()
        del training.optimizer
        gc.collect()
        training.optimizer = torch.optim.SGD([training.parameter], lr=0.1)
    assert training.seen == list(range(1, 11))


def test_steps_inside_a_backward_pass_and_of_another_thread_change_no_phase(way: str) -> None:
    training = Training()
    for _ in range(5):
        training.round()
    STATE.backward_depth = 1
    STATE.live[Live.PHASE] = Phase.BACKWARD
    training.optimizer.step()
    assert STATE.live[Live.PHASE] == Phase.BACKWARD
    STATE.backward_depth = 0
    trainer = STATE.trainer
    thread = threading.Thread(target=training.optimizer.step)
    thread.start()
    thread.join()
    assert STATE.trainer != trainer
    assert STATE.live[Live.STEP] == 7


def test_an_exit_that_was_caught_is_taken_back(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    retracted: list[bool] = []
    monkeypatch.setattr(steps.ending, "retract_exit", lambda: retracted.append(True))  # type: ignore[attr-defined]
    training = Training()
    for _ in range(5):
        training.round()
    STATE.exit_noted, FAST[Fast.PLAIN] = True, 0  # as ending.py does
    training.round()
    assert retracted
    STATE.exit_noted = False


def test_what_autocast_has_cast_makes_a_pass_worth_a_look(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(overflow, "before_backward", looked.append)
    training = Training()
    for _ in range(5):
        training.round()
    overflow.saw_halves()
    training.round()
    assert len(looked) == 1


def test_the_first_bad_loss_is_looked_at_whatever_step_is_waited_for(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    training, seen = Training(), []
    probe = Probe("losses", 3, True)
    losses.LOSSES.__init__()  # type: ignore[misc]
    monkeypatch.setattr(BUDGET, "stride", 128)
    monkeypatch.setattr(origin, "look", lambda root, step, frame: seen.append(step))
    losses.install(probe, torch.autograd)
    for step in range(1, 101):
        bad = 37 <= step < 60 or step == 71
        torch.autograd.backward((training.parameter * (float("nan") if bad else 2.0)).sum())
        training.parameter.grad = None
        training.optimizer.step()
    losses.remove()
    assert seen == [37, 71]
    assert probe.errors == 0


def test_evaluation_ends_with_a_backward_pass(way: str) -> None:
    training = Training()
    for _ in range(5):
        training.round()
    STATE.evaluating = True
    training.round()
    assert STATE.evaluating is False


def test_without_places_none_is_told(way: str) -> None:
    training = Training()
    STATE.detail = 0
    for _ in range(5):
        training.round()
    assert STATE.live[Live.BACKWARD_SITE] == 0


def test_the_budget_is_looked_at_every_sixteenth_step(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(step: int, now: int, every: int) -> int:
        looks.append(step)
        return (step // every + 1) * every

    monkeypatch.setattr(cost, "step_completed", look)
    training = Training()
    for _ in range(50):
        training.round()
    assert looks == [1, 16, 32, 48]


def test_what_steps_cost_is_counted(way: str) -> None:
    training = Training()
    for _ in range(64):
        training.round()
    assert STATE.live[Live.OVERHEAD_NS] > 0


def test_the_benchmark_switches_at_its_blocks(way: str) -> None:
    STATE.settings.bench_steps = 10
    training = Training()
    on: list[int] = []
    for _ in range(60):
        training.round()
        on.append(STATE.live[Live.ENABLED])
    assert on[9::10] == [0, 1, 0, 1, 0, 1]
    assert STATE.live[Live.STEP] == 60
    text = next(Path(STATE.settings.folder).glob("*.bench")).read_text()
    assert [(int(row.split()[0]), int(row.split()[2])) for row in text.splitlines()] == [
        (10, 1), (20, 0), (30, 1), (40, 0), (50, 1), (60, 0),
    ]  # fmt: skip


def _random_run(seed: int) -> list[tuple[int, ...]]:
    rng, training = random.Random(seed), Training()
    others = [torch.optim.SGD([training.parameter], lr=0.1) for _ in range(2)]
    for _ in range(120):
        choice = rng.randrange(12)
        if choice == 0:
            training.round(training.optimizer, *others[: rng.randrange(3)])
        elif choice == 1:
            STATE.live[Live.PHASE] = Phase.DATA
            training.round()
        elif choice == 2:
            training.wait_for(rng.randrange(1, 9))
            training.round()
        elif choice == 3:
            STATE.record(False)
            training.round()
            STATE.record(True)
        else:
            training.round()
    return training.rows


@pytest.mark.parametrize("seed", range(6))
def test_both_ways_tell_the_same_whatever_happens(seed: int, recording: BoxWriter) -> None:
    found = []
    for name in WAYS:
        STATE.record(True)
        recording.live[Live.STEP] = -1
        for number in (Live.BACKWARDS, Live.OPTIMIZER_STEPS, Live.PHASE, Live.BACKWARD_SITE):
            recording.live[number] = 0
        with installed(name):
            found.append(_random_run(seed))
    assert found[0] == found[1]


def test_the_compiled_functions_survive_any_arguments(way: str) -> None:
    native = load.library()
    ignore = lambda *_: None  # noqa: E731
    makers = (native.stepping, native.stepped, native.pass_before, native.pass_after)
    functions = [make(ignore) for make in makers]
    rng = random.Random(3)
    things: list[Any] = [None, 0, (), (1,), (1, 2), ("a", None), (2**80, 1), (1, None), [], {}, object()]
    for plain in (0, 1, 2):
        for _ in range(500):
            FAST[Fast.PLAIN], FAST[Fast.TURN], FAST[Fast.LOOK] = plain, rng.choice((0, 2**40)), rng.choice((0, 2**40))
            FAST[Fast.KNOWN] = id(rng.choice(things))
            for function in functions:
                function(*(rng.choice(things) for _ in range(rng.randrange(4))))
    STATE.backward_depth = 0
