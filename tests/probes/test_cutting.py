"""Autocast that is switched off within a region and left off."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.probes.scalars import clean, told

from diagd.probes import cutting
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.signals import SIGNALS

MINE = torch.set_autocast_enabled


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with clean():
        cutting.CUT.__init__()  # type: ignore[misc]
        yield
        cutting.put_back()


def switches_off(back: bool) -> None:
    before = torch.is_autocast_enabled("cpu")
    torch.set_autocast_enabled("cpu", False)
    if back:
        torch.set_autocast_enabled("cpu", before)


def region(step: int, back: bool = False, enabled: bool = True, grad: bool = True) -> None:
    mine = torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)
    with torch.set_grad_enabled(grad), mine:
        switches_off(back)
        cutting.look(torch, Probe("autocast", 0, always=True), mine, step)


def test_a_region_that_ends_without_it_is_told_once_a_step_and_then_where(recording: BoxWriter) -> None:
    for step in (3, 3, 4):
        region(step)
    series = told(recording).series(0, "autocast/cut")
    assert series is not None
    assert series.steps.tolist() == [3, 4]
    fact = told(recording).fact(0, "autocast/cut")
    assert fact is not None
    file, line, function = fact[1].split("\t")
    assert (file, function) == (__file__, "switches_off")
    assert "set_autocast_enabled" in Path(file).read_text().splitlines()[int(line) - 1]
    assert torch.set_autocast_enabled is MINE  # it is known: nothing is watched any longer


@pytest.mark.parametrize(("back", "enabled", "grad"), [(True, True, True), (False, False, True), (False, True, False)])
def test_what_is_switched_back_or_trains_nothing_is_no_cut(
    recording: BoxWriter, back: bool, enabled: bool, grad: bool
) -> None:
    SIGNALS.record("loss", 1.0, 3)  # there is a file to read
    region(3, back, enabled, grad)
    assert told(recording).series(0, "autocast/cut") is None
    assert torch.set_autocast_enabled is MINE
