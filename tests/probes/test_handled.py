"""Exceptions that the main thread stands in, as diagd's own thread sees them."""

import threading

import pytest

from diagd.probes.handled import HANDLED, LASTS
from diagd.probes.signals import SIGNALS


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(SIGNALS, "fact", lambda name, text: found.append(text))
    HANDLED.__init__()  # type: ignore[misc]
    return found


def looks(times: int) -> None:
    """From another thread."""
    for _ in range(times):
        thread = threading.Thread(target=HANDLED.look)
        thread.start()
        thread.join()


def read(key: int) -> int:
    return {1: 2}[key]


def test_an_error_that_waits_in_a_handler_is_told_once_and_taken_back(told: list[str]) -> None:
    try:
        read(7)
    except KeyError:
        looks(LASTS)
        assert told == []  # it may be over at once
        looks(5)
        (text,) = told
        error, file, line, function = text.split("\t")
        assert (error, function) == ("KeyError: 7", "read")
        assert file == __file__
        assert int(line) == read.__code__.co_firstlineno + 1
    looks(1)
    assert told[1:] == [""]


def test_a_finally_is_a_handler_too_and_a_message_of_many_lines_is_cut(told: list[str]) -> None:
    def fails() -> None:
        try:
            raise RuntimeError("Caught it in worker 0.\nTraceback\n  File x\nKeyError: 1777")
        finally:
            looks(LASTS + 1)

    with pytest.raises(RuntimeError):
        fails()
    assert told[0].startswith("RuntimeError: Caught it in worker 0. … KeyError: 1777\t")


def test_errors_that_come_and_go_are_not_told(told: list[str]) -> None:
    for key in range(4):
        try:
            read(-key)
        except KeyError:
            looks(1)
        looks(1)
    assert told == []


def test_no_code_of_the_scripts_own_is_run_for_it(told: list[str]) -> None:
    class Odd(ValueError):
        def __str__(self) -> str:
            raise AssertionError("it was run")

    try:
        raise Odd(7)
    except Odd:
        looks(LASTS + 1)
    assert told[0].startswith("Odd: \t")
