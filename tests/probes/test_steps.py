"""What counts as a training step where there is an engine, or no optimizer; the budget; the benchmark's switch."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from diagd.probes import cost, steps
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.budget import BUDGET, MAX_STRIDE
from diagd.probes.guard import Probe
from diagd.probes.settings import Settings
from diagd.probes.state import STATE

SECOND = 10**9


@pytest.fixture(autouse=True)
def _fresh(recording: BoxWriter) -> Iterator[None]:
    steps.PROGRESS.__init__()  # type: ignore[misc]
    cost.forget()
    yield
    steps.remove()
    cost.forget()


class Engine:
    """Steps once in two calls, as with two micro-batches."""

    def __init__(self) -> None:
        self.global_steps = 0
        self.calls = 0

    def _take_model_step(self) -> None:
        self.calls += 1
        self.global_steps = self.calls // 2


def test_an_engines_own_steps_count_and_its_optimizers_do_not(recording: BoxWriter) -> None:
    module = SimpleNamespace(__name__="deepspeed.runtime.engine", DeepSpeedEngine=Engine)
    steps.install(Probe("steps", 0, always=True), module)
    engine, optimizer = Engine(), SimpleNamespace()
    optimizer = type("Optimizer", (), {})()
    for _ in range(6):
        engine._take_model_step()
        steps._stepped(optimizer)
    assert recording.live[Live.STEP] == 3
    assert recording.live[Live.OPTIMIZER_STEPS] == 6


def test_without_any_optimizer_a_backward_pass_is_a_step(recording: BoxWriter) -> None:
    for _ in range(4):
        steps.backward_completed()
    assert (recording.live[Live.STEP], recording.live[Live.BACKWARDS]) == (4, 4)


def test_with_an_optimizer_it_is_not(recording: BoxWriter) -> None:
    steps._made((), {})
    for _ in range(4):
        steps.backward_completed()
    assert recording.live[Live.STEP] == -1


def test_optimizers_that_never_seem_to_step_are_not_waited_for_for_ever(recording: BoxWriter) -> None:
    steps._made((), {})
    for _ in range(steps._PATIENCE + 3):
        steps.backward_completed()
    assert recording.live[Live.STEP] == 3


def test_where_no_optimizer_is_seen_it_is_said_what_is_not_watched(recording: BoxWriter) -> None:
    for _ in range(2 * steps._PATIENCE - 1):
        steps.backward_completed()
    assert STATE.notes == []
    steps.backward_completed()
    steps.backward_completed()
    assert ["diagd.probes.watch" in note for note in STATE.notes] == [True]


def train(step: int, seconds: float, overhead: float) -> int:
    """A hundred steps that took so long and cost so much, from `step` on."""
    for number in range(1, 101):
        STATE.live[Live.OVERHEAD_NS] += int(overhead * SECOND / 100)
        cost.step_completed(step + number, int((1000 + (step + number) * seconds / 100) * SECOND))
    return step + 100


def test_within_half_the_budget_nothing_is_left_out() -> None:
    step = 0
    for _ in range(5):
        step = train(step, seconds=5, overhead=0.024)
    assert (STATE.detail, STATE.notes, BUDGET.stride) == (2, [], 1)


def test_in_the_long_run_samples_may_take_half_of_that_and_details_stay() -> None:
    step = train(0, seconds=5, overhead=0.02)
    while BUDGET.stride == 1:
        step = train(step, seconds=5, overhead=0.02)
    assert step * 5 / 100 == 5 + cost.LATER_NS / SECOND + 5
    for _ in range(30):
        step = train(step, seconds=5, overhead=0.02)
    assert (BUDGET.stride, STATE.detail) == (MAX_STRIDE, 2)


def test_between_half_the_budget_and_all_of_it_samples_get_rarer_and_details_stay() -> None:
    step = train(0, seconds=30, overhead=0)
    for _ in range(30):
        step = train(step, seconds=30, overhead=0.24)
    assert (BUDGET.stride, STATE.detail) == (MAX_STRIDE, 2)


def test_over_the_budget_samples_get_rarer_first_and_then_details_go_and_it_is_said(recording: BoxWriter) -> None:
    step, seen = train(0, seconds=30, overhead=0), []
    while STATE.detail:
        step = train(step, seconds=30, overhead=0.9)
        seen.append((BUDGET.stride, STATE.detail))
    assert seen == sorted(seen, key=lambda pair: (pair[0], -pair[1]))
    assert {stride for stride, detail in seen if detail < 2} == {MAX_STRIDE}
    assert 2 <= [detail for _, detail in seen].count(1) <= 4
    assert [note.rpartition(": ")[2] for note in STATE.notes if note.startswith("left out")] == [
        "shapes and types of operations",
        "call sites of operations",
    ]


def test_a_benchmark_is_held_to_the_budget_of_the_time_in_which_the_probes_are_on(tmp_path: Path) -> None:
    STATE.settings = Settings(str(tmp_path), bench_steps=10_000)
    step = train(0, seconds=5, overhead=0)
    step = train(step, seconds=5, overhead=0.012)
    assert BUDGET.stride == 1
    train(step, seconds=5, overhead=0.013)
    assert BUDGET.stride > 1


def test_a_short_burst_is_not_judged() -> None:
    train(0, seconds=2, overhead=1)
    assert STATE.detail == 2


def test_the_benchmark_switches_the_probes_off_and_on_and_writes_each_block_down(
    tmp_path: Path, recording: BoxWriter
) -> None:
    STATE.settings = Settings(str(tmp_path), bench_steps=3)
    switched: list[bool] = []
    STATE.listeners.append(switched.append)
    try:
        for step in range(1, 13):
            following = cost.step_completed(step, step * 10, every=16)
            assert following == (step // 3 + 1) * 3
    finally:
        STATE.listeners.remove(switched.append)
    assert switched == [False, True, False, True]
    (path,) = tmp_path.glob("*.bench")
    rows = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
    assert rows == [(3, 30, 1), (6, 60, 0), (9, 90, 1), (12, 120, 0)]
    assert recording.live[Live.ENABLED] == 1


def test_what_parts_have_counted_for_themselves_is_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100, 400))
    monkeypatch.setattr(cost, "_clock", lambda: next(times))
    STATE.live[Live.OVERHEAD_NS] = 1000
    begun = cost.begin()
    BUDGET.spent(250)
    cost.count(begun)
    assert STATE.live[Live.OVERHEAD_NS] == 1300


def test_the_cost_is_this_threads_cpu_time() -> None:
    assert cost._clock is time.thread_time_ns
