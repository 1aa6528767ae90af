"""Where Python allocates what a training keeps, in this process."""

import os
import sys
import tracemalloc
from collections.abc import Iterator

import pytest

from diagd.probes.allocations import APART_STEPS, WARM_STEPS, Tracing
from diagd.probes.box.writer import BoxWriter
from diagd.probes.settings import Settings, read
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

STEPS = 2 * (WARM_STEPS + APART_STEPS)
KEPT_BYTES = 20_000


@pytest.fixture
def facts(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What was told; a person has asked for it."""
    found: dict[str, str] = {}
    monkeypatch.setattr(SIGNALS, "fact", lambda name, text, step=None: found.__setitem__(name, text))
    monkeypatch.setattr(STATE, "settings", Settings(trace_allocations=True))
    yield found
    assert not tracemalloc.is_tracing()


class Record:
    """Keeps a text of each step."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []

    def add(self, step: int) -> int:
        self.texts.append(bytes(KEPT_BYTES + step))
        return sys._getframe().f_lineno - 1


def train(keeps: bool, grows_from: int = 3) -> int:
    tracing, record, line = Tracing(), Record(), 0
    for step in range(STEPS):
        if keeps:
            line = record.add(step)
        passing(tracing, step)
        if step >= grows_from:
            tracing.begin(step)
    return line


def passing(tracing: Tracing, step: int) -> None:
    """With what a step holds only for itself."""
    batch = [bytes(KEPT_BYTES) for _ in range(4)]
    if tracing.on and batch:
        tracing.follow(step)


def test_the_line_that_allocates_what_is_kept_is_told_with_bytes_and_function(facts: dict[str, str]) -> None:
    line = train(keeps=True)
    size, blocks, steps, *place = facts["memory/allocated"].split("\n")[0].split("\t")
    assert place == [__file__, str(line), "add"]
    assert (int(blocks), int(steps)) == (APART_STEPS, APART_STEPS)
    assert int(size) >= APART_STEPS * KEPT_BYTES


def test_what_a_step_takes_and_gives_back_is_not_told(facts: dict[str, str]) -> None:
    train(keeps=False)
    assert facts["memory/allocated"] == f"0\t0\t{APART_STEPS}\t\t0\t"


def test_nothing_is_traced_before_anything_grows_nor_where_nobody_has_asked(
    facts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(keeps=True, grows_from=STEPS)
    monkeypatch.setattr(STATE, "settings", Settings())
    train(keeps=True)
    assert facts == {}


def test_a_forked_child_does_not_trace_and_its_parent_goes_on(facts: dict[str, str]) -> None:
    tracing = Tracing()
    tracing.begin(1)
    child = os.fork()
    if child == 0:
        os._exit(int(tracemalloc.is_tracing() or tracing.on))
    assert os.waitpid(child, 0)[1] == 0
    assert tracemalloc.is_tracing()
    tracing._stop()


def test_a_look_that_fails_leaves_nothing_on(facts: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    tracing = Tracing()
    tracing.begin(1)
    monkeypatch.setattr(tracemalloc, "take_snapshot", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tracing.follow(1 + WARM_STEPS)
    assert not tracing.on


def test_a_script_that_traces_by_itself_is_left_alone(facts: dict[str, str]) -> None:
    tracemalloc.start()
    try:
        train(keeps=True)
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
    assert facts == {}
    assert "the script traces them itself" in STATE.notes[-1]


def test_it_is_asked_for_by_the_environment() -> None:
    assert read({"DIAGD_TRACE": "allocations"}).trace_allocations
    assert not read({"DIAGD_TRACE": ""}).trace_allocations
