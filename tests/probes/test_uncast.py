"""Modules that ran under autocast before, and run where something inside the region switches it off."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.probes.scalars import clean, told

from diagd.probes import autocast, forwards, uncast
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.signals import SIGNALS

X = torch.ones(2, 4)


class Full(torch.autograd.Function):
    """Runs a module in full precision, and gives no gradients."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, module: torch.nn.Module, x: torch.Tensor) -> Any:
        return module(x)


@pytest.fixture(autouse=True)
def _looking(recording: BoxWriter) -> Iterator[None]:
    """Hooks are in place, and the probe for autocast is."""
    with clean():
        forwards.PASS.__init__()  # type: ignore[misc]
        uncast.PARTS.__init__()  # type: ignore[misc]
        seen = forwards._guarded(torch, Probe("forwards", 3, always=True), forwards._returned)
        handle = torch.nn.modules.module.register_module_forward_hook(seen)
        autocast.install(Probe("autocast", 0, always=True), torch.amp.autocast_mode)
        SIGNALS.record("loss", 1.0, 1)  # there is a file to read
        yield
        autocast.remove()
        handle.remove()
        forwards.PASS.__init__()  # type: ignore[misc]
        uncast.PARTS.__init__()  # type: ignore[misc]


Way = Callable[[torch.nn.Module], Any]


def plainly(block: torch.nn.Module) -> None:
    block(X)


def in_full(block: torch.nn.Module) -> None:
    Full.apply(block, X)  # type: ignore[no-untyped-call]


def in_a_region(block: torch.nn.Module) -> None:
    with torch.autocast("cpu", enabled=False):
        block(X)


def also_in_full(block: torch.nn.Module) -> None:
    block(X)
    in_full(block)


def not_at_all(block: torch.nn.Module) -> None:
    """Another branch is taken."""


def look(stem: torch.nn.Module, block: torch.nn.Module, way: Way) -> None:
    uncast.begin()
    with torch.autocast("cpu", torch.bfloat16):
        stem(X)
        way(block)
    forwards._before_backward(None)
    forwards.close()


def shares(recording: BoxWriter, before: Way, then: Way, *, trains: bool = True) -> list[float]:
    stem, block = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    block.requires_grad_(trains)
    for way in (*[before] * 5, then):
        look(stem, block, way)
    series = told(recording).series(0, "autocast/lost")
    return [] if series is None else series.values.tolist()


@pytest.mark.parametrize("then", [in_full, in_a_region])
def test_a_module_that_no_longer_runs_under_it_is_told_with_the_place_and_looked_at_again(
    recording: BoxWriter, then: Way
) -> None:
    assert shares(recording, plainly, then)[-2:] == [0.0, 0.5]
    assert uncast.PARTS.again == uncast.AGAIN
    place, of = told(recording).fact(0, "autocast/lost"), told(recording).fact(0, "autocast/lost/of")
    assert place is not None
    assert of is not None
    assert (place[1].split("\t")[0], place[1].split("\t")[2]) == (__file__, then.__name__)
    assert of[1] == "1\tLinear"


@pytest.mark.parametrize(("before", "then", "trains"), [
    (plainly, also_in_full, True),  # as a penalty beside the loss
    (plainly, not_at_all, True),
    (plainly, in_full, False),
    (in_full, in_full, True),  # it always has
])  # fmt: skip
def test_of_these_none_is_lost(recording: BoxWriter, before: Way, then: Way, trains: bool) -> None:
    found = shares(recording, before, then, trains=trains)
    assert found
    assert not any(found)
    assert not uncast.PARTS.again


def test_an_evaluation_without_it_between_two_steps_is_none_of_the_forward_pass(recording: BoxWriter) -> None:
    stem, block = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    for step in range(6):
        uncast.begin()
        if step == 5:
            with torch.no_grad():
                block(X)
        look(stem, block, not_at_all if step == 5 else plainly)
    series = told(recording).series(0, "autocast/lost")
    assert series is not None
    assert not series.values.any()
