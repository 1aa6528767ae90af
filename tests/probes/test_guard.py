"""The wall towards the job."""

import traceback
from typing import Any

import pytest

from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import HIDDEN, MAX_ERRORS, Patches, Probe, around, wrapper
from diagd.probes.state import STATE


@pytest.fixture
def probe(recording: BoxWriter) -> Probe:
    return Probe("test", 3, always=True)


def nothing(*_: Any) -> None:
    """Does nothing."""


def boom(*_: Any) -> None:
    raise RuntimeError("boom")


def original(value: int, *, scale: int = 1) -> int:
    """Multiplies."""
    if value < 0:
        raise ValueError("negative")
    return value * scale


def test_a_wrapped_function_returns_what_it_did(probe: Probe) -> None:
    seen: list[Any] = []
    wrapped = around(probe, original, lambda args, kwargs: (args, kwargs), lambda *given: seen.append(given), nothing)
    assert wrapped(3, scale=2) == 6
    assert seen == [(((3,), {"scale": 2}), 6)]
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__wrapped__) == ("original", "Multiplies.", original)
    assert wrapped.__module__ == __name__


@pytest.mark.parametrize("parts", [(boom, nothing), (lambda *_: True, boom)])
def test_a_failing_probe_changes_nothing_and_is_switched_off(probe: Probe, recording: BoxWriter, parts: Any) -> None:
    before, after = parts
    wrapped = around(probe, original, before, after, nothing)
    assert [wrapped(n) for n in range(MAX_ERRORS + 2)] == list(range(MAX_ERRORS + 2))
    assert (probe.tripped, probe.on, probe.errors) == (True, False, MAX_ERRORS)
    assert recording.live[Live.PROBE_ERRORS] == MAX_ERRORS
    assert STATE.off_bits == 1 << 3
    assert STATE.notes == ["probe test is off: RuntimeError: boom"]
    probe.switch(True)
    assert not probe.on


def test_an_exception_of_the_original_passes_unchanged_also_when_the_probe_fails_on_it(probe: Probe) -> None:
    wrapped = around(probe, original, lambda *_: True, nothing, boom)
    with pytest.raises(ValueError, match="negative") as caught:
        wrapped(-1)
    assert caught.value.__context__ is None
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files.count(HIDDEN) == 1
    assert not [file for file in files if "diagd/probes/guard" in file]


def test_a_probe_that_is_off_is_not_asked(probe: Probe) -> None:
    probe.on = False
    assert around(probe, original, boom, boom, boom)(2) == 2
    assert probe.errors == 0


def test_patches_are_put_back_as_they_were(probe: Probe) -> None:
    class Base:
        def act(self) -> str:
            return "base"

    class Derived(Base):
        pass

    before = dict(vars(Derived)), dict(vars(Base))
    patches = Patches()
    assert patches.replace(Derived, "act", wrapper(probe, nothing, nothing, nothing))
    assert not patches.replace(Derived, "missing", wrapper(probe, nothing, nothing, nothing))
    assert not patches.replace(int, "bit_length", wrapper(probe, nothing, nothing, nothing))  # cannot be set
    assert Derived().act() == "base"
    patches.undo()
    assert (dict(vars(Derived)), dict(vars(Base))) == before
