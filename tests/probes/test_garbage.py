"""What Python's garbage collector takes."""

import gc
from collections.abc import Iterator

import pytest

from diagd.probes import garbage
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe


@pytest.fixture
def probe() -> Iterator[Probe]:
    probe = Probe("garbage", 3, always=True)
    garbage.begin(probe)
    yield probe
    garbage.remove()


def test_a_collection_is_timed(recording: BoxWriter, probe: Probe) -> None:
    gc.collect()
    first = recording.live[Live.GARBAGE_NS]
    gc.collect()
    assert 0 < first < recording.live[Live.GARBAGE_NS]


def test_it_asks_once_and_can_be_taken_away(recording: BoxWriter, probe: Probe) -> None:
    before = len(gc.callbacks)
    garbage.begin(probe)
    assert len(gc.callbacks) == before
    garbage.remove()
    assert len(gc.callbacks) == before - 1
    gc.collect()
    assert recording.live[Live.GARBAGE_NS] == 0


def test_a_probe_that_is_off_counts_nothing(recording: BoxWriter, probe: Probe) -> None:
    probe.trip("for a test")
    gc.collect()
    assert recording.live[Live.GARBAGE_NS] == 0
