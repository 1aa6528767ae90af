"""Where a rank's Python allocates what it keeps, where a person asks for that: `diagd run --trace-allocations`.

tracemalloc sees what Python itself and NumPy allocate (lists, texts, bytes, arrays) and no tensors. While it is on, a
loop can take ten times as long: it is switched on once a rank's memory has been seen to grow, for some steps, once in a
process. A script that traces by itself is left alone.

The fact `memory/allocated` has a line for each place, the one that keeps most first: bytes, allocations, steps,
file, line and function, parted by tabs; with no bytes and no place, nothing that Python allocated was kept.
"""

import ast
import os
import tracemalloc
from typing import NamedTuple

from diagd.probes.signals import SIGNALS
from diagd.probes.sites import is_users
from diagd.probes.state import STATE

WARM_STEPS = 10  # what a step holds only for itself is there by then
APART_STEPS = 20  # between the two looks
FRAMES = 16  # of each allocation that are kept: libraries lie between it and the script
MOST = 3  # places that are told
LEAST_BYTES = 1024  # a step: less is no leak that fills a machine
_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "*")

Place = tuple[str, int]


class Kept(NamedTuple):
    """What is in use of what was allocated at one place."""

    bytes: int = 0
    blocks: int = 0


class Tracing:
    """One process's."""

    def __init__(self) -> None:
        self.on = False
        self._begun = False  # once, whatever comes of it
        self._since = 0
        self._first_at = 0
        self._first: dict[Place, Kept] = {}

    def begin(self, step: int) -> None:
        """Memory has been seen to grow; does nothing where nobody has asked, or from the second time on."""
        if self._begun or not STATE.settings.trace_allocations:
            return
        self._begun = True
        if tracemalloc.is_tracing():
            STATE.note("allocations are not traced: the script traces them itself")
            return
        tracemalloc.start(FRAMES)
        self.on, self._since = True, step
        os.register_at_fork(after_in_child=self._stop)  # a data worker would trace to its end

    def follow(self, step: int) -> None:
        """To be called after each step while it is on."""
        try:
            if not self._first_at and step - self._since >= WARM_STEPS:
                self._first_at, self._first = step, in_use()
            elif self._first_at and step - self._first_at >= APART_STEPS:
                self._tell(step)
                self._stop()
        except BaseException:
            self._stop()
            raise

    def _tell(self, step: int) -> None:
        steps = step - self._first_at
        told = _told(self._first, in_use(), steps) or [f"0\t0\t{steps}\t\t0\t"]
        SIGNALS.fact("memory/allocated", "\n".join(told), step)

    def _stop(self) -> None:
        if self.on:
            self.on = False
            tracemalloc.stop()
            self._first.clear()


def in_use() -> dict[Place, Kept]:
    """By the innermost place in the script's own code, else the innermost; without what diagd itself has allocated."""
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, _OWN)])
    found: dict[Place, Kept] = {}
    for one in snapshot.statistics("traceback"):
        frames = list(reversed(one.traceback))  # the innermost comes last there
        frame = next((f for f in frames if is_users(f.filename)), frames[0])
        before = found.get(place := (frame.filename, frame.lineno), Kept())
        found[place] = Kept(before.bytes + one.size, before.blocks + one.count)
    return found


def _told(first: dict[Place, Kept], last: dict[Place, Kept], steps: int) -> list[str]:
    grown = []
    for (file, line), kept in last.items():
        before = first.get((file, line), Kept())
        if kept.bytes - before.bytes >= LEAST_BYTES * steps:
            grown.append((kept.bytes - before.bytes, kept.blocks - before.blocks, file, line))
    most = sorted(grown, reverse=True)[:MOST]
    return [f"{size}\t{blocks}\t{steps}\t{file}\t{line}\t{_function(file, line)}" for size, blocks, file, line in most]


def _function(file: str, line: int) -> str:
    """The function that the line is in, which tracemalloc does not tell."""
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return "?"
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    around = [n for n in ast.walk(tree) if isinstance(n, kinds) and n.lineno <= line <= (n.end_lineno or 0)]
    return max(around, key=lambda node: node.lineno).name if around else "<module>"
