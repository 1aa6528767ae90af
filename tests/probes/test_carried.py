"""Exceptions of data workers, as torch hands them to the rank."""

import sys
from pathlib import Path
from typing import Any

import pytest
from torch._utils import ExceptionWrapper

from diagd.probes.carried import carried


def read(name: str) -> None:
    raise FileNotFoundError(2, "No such file or directory", name)


def check(sizes: list[int]) -> None:
    raise ValueError("sizes differ:\n  first 3\nsecond 4")


def handed_over(function: Any, *given: Any) -> str:
    """What a worker's exception says in the rank."""
    try:
        function(*given)
    except (OSError, ValueError):
        wrapped = ExceptionWrapper(sys.exc_info(), where="in DataLoader worker process 0")  # type: ignore[no-untyped-call]
    with pytest.raises((OSError, ValueError)) as raised:
        wrapped.reraise()  # type: ignore[no-untyped-call]
    return str(raised.value)


def test_the_workers_own_frames_and_error_are_told() -> None:
    message, frames = carried(handed_over(read, "/data/00777.bin"))
    assert message == (
        "Caught FileNotFoundError in DataLoader worker process 0."
        " FileNotFoundError: [Errno 2] No such file or directory: '/data/00777.bin'"
    )
    assert [(frame[0], Path(frame[1]).name, frame[3]) for frame in frames] == [
        ("read", "test_carried.py", True), ("handed_over", "test_carried.py", True),
    ]  # fmt: skip
    assert frames[0][2] == read.__code__.co_firstlineno + 1


def test_a_message_of_several_lines_is_kept_whole() -> None:
    message, _ = carried(handed_over(check, [3, 4]))
    assert message.endswith("ValueError: sizes differ:\n  first 3\nsecond 4")


@pytest.mark.parametrize("message", ["", "bad sample", "Original Traceback (most recent call last): none"])
def test_other_messages_are_left_as_they_are(message: str) -> None:
    assert carried(message) == (message, [])
