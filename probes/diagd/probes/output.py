"""What the script prints: the metrics in the lines that pass through standard output and standard error.

The streams stay the job's own; only their `write` also hands over what it has written. Other objects that a script puts
in their place are left alone: they write to these in the end, or to what is no output.
"""

import re
import sys
import threading
import time
from io import TextIOWrapper
from typing import Any

from diagd.probes import logged
from diagd.probes.box.layout import Live
from diagd.probes.box.metric_text import MAX_LINE, Reader
from diagd.probes.budget import BUDGET
from diagd.probes.guard import Probe, disguised
from diagd.probes.logged import LOGGED, TEXT
from diagd.probes.state import STATE

_USUAL_NS = 20_000  # of one line
_MAX_WRITE = 65536  # characters at once: more is data
_MOST_PARTS = 256  # of a line
_TOO_LONG = " " * (MAX_LINE + 1)  # in place of a part that is longer than any line that is read
_MAIN = threading.main_thread().ident
_ENDS = re.compile(r"[\r\n]+")  # a progress bar goes back to the beginning of its line instead of ending it


class Stream:
    """One stream that is watched, and the line that is being written to it."""

    def __init__(self, probe: Probe, stream: TextIOWrapper) -> None:
        self.stream = stream
        self.original = stream.write
        self.parts: list[str] = []  # of the line
        self._lost = False  # a part of the line was not seen
        self._lock = threading.Lock()
        self._reader = Reader()
        self.write = _watched(probe, self.original, self)

    def put_in_place(self) -> None:
        """Watch from now on."""
        self.stream.write = self.write  # type: ignore[method-assign]

    def remove(self) -> None:
        """Leave the stream as it was, unless somebody else has put something over it."""
        if self.stream.__dict__.get("write") is self.write:
            del self.stream.__dict__["write"]
            if self.stream.write != self.original:
                self.stream.write = self.original  # type: ignore[method-assign]

    def forget(self) -> None:
        """A forked child begins a line of its own, and finds nobody inside."""
        self.parts.clear()
        self._lost = False
        self._lock = threading.Lock()

    def take(self, text: str) -> None:
        """Read the lines that are whole with what was written now."""
        # Not to be waited for: a signal's handler, which prints, may have interrupted this very function.
        if not self._lock.acquire(blocking=False):
            self._lost = True
            return
        try:
            lost = self._lost or len(self.parts) >= _MOST_PARTS or len(text) > _MAX_WRITE
            first, *more = _ENDS.split(text if lost else "".join(self.parts) + text)
            self.parts.clear()
            self._lost = False
            for line in more[:-1] if lost else [first, *more[:-1]]:
                self._read(line)
            if more[-1]:
                self.parts.append(more[-1][: MAX_LINE + 1])
        finally:
            self._lock.release()

    def _read(self, line: str) -> None:
        if len(line) < 4 or not BUDGET.affords(_USUAL_NS):
            return
        began = time.perf_counter_ns()
        found = self._reader.read(line)
        if found is not None:
            LOGGED.put(found.values, found.step, TEXT)
        BUDGET.spent(time.perf_counter_ns() - began)


def _say() -> None:
    """Note that the main thread goes on: what it has written may lie in the stream's buffer for long."""
    if STATE.live is not None and threading.get_ident() == _MAIN:
        STATE.live[Live.SAID_NS] = time.monotonic_ns()


def _watched(probe: Probe, original: Any, stream: Stream) -> Any:
    """A `write` that writes, and then keeps or tells. print() calls it for each of its words: parts are only kept."""
    parts, take = stream.parts, stream.take

    def write(text: str, /) -> Any:
        count = original(text)
        if probe.on:
            try:
                if "\n" in text or "\r" in text:
                    _say()
                    take(text)
                elif len(parts) < _MOST_PARTS:
                    parts.append(text if len(text) <= MAX_LINE else _TOO_LONG)
            except Exception as error:  # noqa: BLE001 - Probe.run, without the call of it
                probe.failed(error)
        return count

    return disguised(write, original)


STREAMS: list[Stream] = []


def begin(probe: Probe) -> None:
    """The process has become a rank: watch its streams, also of a forked child that has become one."""
    if not STREAMS:
        STATE.listeners.append(_at_switch)
    known = [watched.stream for watched in STREAMS]
    for stream in (sys.__stdout__, sys.__stderr__, sys.stdout, sys.stderr):
        # Of these alone it is known what their `write` is: a stand-in may hand on what is set on it.
        if type(stream) is TextIOWrapper and all(stream is not other for other in known):
            known.append(stream)
            watched = Stream(probe, stream)
            watched.put_in_place()
            STREAMS.append(watched)


def remove() -> None:
    """Leave the streams as they were."""
    while STREAMS:
        STREAMS.pop().remove()


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        logged.forget()
        for watched in STREAMS:
            watched.forget()
