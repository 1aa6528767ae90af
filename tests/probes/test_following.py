"""No probe sleeps through a step that is its turn: what it says it waits for next, against what it says is due."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from diagd.probes import forwards, gradients, inputs, memory, sweeps, turns
from diagd.probes.box.writer import BoxWriter
from diagd.probes.budget import BUDGET

STRIDES = (1, 2, 8, 32, 128)


@pytest.fixture(params=STRIDES)
def stride(request: pytest.FixtureRequest, recording: BoxWriter) -> Iterator[int]:
    BUDGET.stride = request.param
    yield request.param
    BUDGET.forget()


def waited_for(following: Callable[[int], int], until: int = 40_000) -> set[int]:
    found, step = set(), 1
    while (step := following(step)) <= until:
        assert step not in found
        found.add(step)
    return found


@pytest.mark.parametrize("turn", [32, 128, 256])
def test_turns_of_tensors(stride: int, turn: int) -> None:
    due = {step for step in range(2, 40_001) if gradients.is_turn(step, turn)}
    assert waited_for(lambda step: gradients.next_turn(step, turn)) == due


def test_inputs(stride: int) -> None:
    inputs.INPUTS.__init__()  # type: ignore[misc]
    due = {step for step in range(2, 40_001) if inputs.is_due(step)}
    assert waited_for(inputs._following) >= due


def test_forward_passes(stride: int) -> None:
    forwards.PASS.__init__()  # type: ignore[misc]
    found = waited_for(forwards._following)
    assert found >= {step for step in forwards.ALWAYS if step > 1}
    assert len(found) <= 40_000 // max(forwards.EVERY, stride) + len(forwards.ALWAYS)
    forwards.PASS.open = [object()]
    assert forwards._following(500) == 501
    forwards.PASS.__init__()  # type: ignore[misc]


@pytest.mark.parametrize("each_us", [200, 1_000, 50_000, 10_000_000])
def test_memory_by_how_long_steps_take(stride: int, each_us: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_watch", memory._Watch())
    each_ns, period, step = each_us * 1000, memory.EVERY_NS * stride, 1
    visits: list[int] = []
    sampled: list[int] = []
    while len(sampled) < 20:
        visits.append(step)
        if memory._is_due(step, step * each_ns):
            sampled.append(step * each_ns)
        step = memory._following(step)
    gaps = [after - before for before, after in pairwise(sampled)]
    assert min(gaps) >= period
    assert max(gaps) <= period + 2 * each_ns
    least = len(sampled) + len(sampled) * period // (memory.MANY_STEPS * each_ns)
    assert len(visits) <= 2 * least + 3  # also before the length of a step is known


def test_memory_at_each_step_while_allocations_are_traced(stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = memory._Watch()
    watch.each_ns, watch.wait_ns, watch.tracing.on = 1_000_000, 500_000_000, True
    monkeypatch.setattr(memory, "_watch", watch)
    assert memory._following(100) == 101
    watch.tracing.on = False
    assert memory._following(100) == 600


def test_a_request_is_looked_for_with_small_things_and_served_at_its_step(
    stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps.SWEEP, "request", None)
    assert 100 < sweeps.following(100) <= 100 + max(stride // 4, 1)
    request: Any = SimpleNamespace(step=117)
    monkeypatch.setattr(sweeps.SWEEP, "request", request)
    assert sweeps.following(100) == min(turns.small(100), 117)  # a later request may take its place
    assert (sweeps.following(116), sweeps.following(117), sweeps.following(118)) == (117, 118, 119)
