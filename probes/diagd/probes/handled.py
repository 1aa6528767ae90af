"""An exception that the main thread stands in: it is in a `finally` or an `except`, and nobody has seen it yet.

A rank that fails and then waits for the others in its handler (a barrier in `finally`) prints nothing for as long as
they do not come. Looked at by diagd's own thread; told once it lasts, and taken back when it is over:

    exception/handled    fact: "TYPE: MESSAGE<tab>FILE<tab>LINE<tab>FUNCTION" of where the script's own code raised it
    backward/broke       the same of what a backward pass raised, which the script may catch
"""

import sys
import threading
from typing import Any

from diagd.probes import sites
from diagd.probes.signals import SIGNALS

LASTS = 2  # looks in a row, after the first
LENGTH = 300  # of the message


class _Handled:
    """This process's."""

    def __init__(self) -> None:
        self.number = 0  # id of the exception at the last look
        self.looks = 0
        self.told = False

    def look(self) -> None:
        """Called some four times a second."""
        found = _of_main_thread()
        number = id(found) if found is not None else 0
        self.looks = self.looks + 1 if number and number == self.number else 0
        self.number = number
        if found is not None and self.looks == LASTS:
            self.told = True
            SIGNALS.fact("exception/handled", text_of(found))
        elif self.told and not number:
            self.told = False
            SIGNALS.fact("exception/handled", "")


HANDLED = _Handled()


def _of_main_thread() -> BaseException | None:
    # Python before 3.12 gives type, value and place.
    active: Any = sys._current_exceptions().get(threading.main_thread().ident or 0)
    found = active[1] if isinstance(active, tuple) else active
    return found if isinstance(found, Exception) else None


def text_of(error: BaseException) -> str:
    """In one line: its type and message, and where the script's own code raised it, between tabs."""
    lines = _message(error).replace("\t", " ").strip().splitlines() or [""]
    message = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"  # as of a data worker, with its traceback
    frames = sites.frames_of(error.__traceback__)
    function, file, line = next((frame[:3] for frame in frames if frame[3]), ("", "", 0))
    return f"{type(error).__name__}: {message[:LENGTH]}\t{file}\t{line}\t{function}"


def _message(error: BaseException) -> str:
    """What it says of itself; not where that would run code of the script's in this thread."""
    owner = next(kind for kind in type(error).__mro__ if "__str__" in vars(kind))
    return str(error) if owner.__module__ == "builtins" else ""
