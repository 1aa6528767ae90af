"""One cell for each rank: a letter and a style, and the legend that explains them."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from diagd.daemon.cli.jobview.snapshot import GONE, UNREPORTED, Mark, Snapshot
from diagd.daemon.cli.jobview.text import Line, Span, size


class Cell(NamedTuple):
    """What a rank's cell shows."""

    char: str
    style: str


_STATES = {
    "running": Cell(".", "good"),
    "blocked": Cell("b", "warn"),
    "stopped": Cell("t", "bad"),
    "killed": Cell("k", "bad"),
    "exited": Cell("e", "dim"),
    "lost": Cell("?", "warn"),
    UNREPORTED: Cell("_", "dim"),
}
_SLOW = Cell("s", "warn")
_PHASES = {
    "init": "i", "data": "d", "forward": "f", "backward": "b", "optimizer": "o", "collective": "c", "checkpoint": "k",
    "eval": "e",
}  # fmt: skip
_OTHER_PHASE = "u"  # the user's own
# Seconds from which on a wait has this digit.
_WAITS = ((1, "1"), (3, "2"), (10, "3"), (30, "4"), (60, "5"), (300, "6"), (600, "7"), (1800, "8"), (3600, "9"))
_LONG_S = 10.0
# Milliseconds from which on a rank's coming late has this digit.
_LATE = ((1, "1"), (3, "2"), (10, "3"), (30, "4"), (100, "5"), (300, "6"), (1000, "7"), (3000, "8"), (10000, "9"))
_LATE_S = 0.03
_FAR_STEPS = 10


def state_cell(snapshot: Snapshot, number: int) -> Cell:
    """Whether it runs, and whether an open incident names it."""
    rank = snapshot.ranks.get(number)
    mark = snapshot.marks.get(number)
    if mark is not None:
        return _SLOW if mark.slow else Cell("!", _mark_style(mark))
    return _STATES.get(UNREPORTED if rank is None else str(rank["state"]), Cell("?", "warn"))


def phase_cell(snapshot: Snapshot, number: int) -> Cell:
    """What it is doing."""
    return _alive(snapshot, number, lambda rank: Cell(_PHASES.get(str(rank["phase"]), _OTHER_PHASE), "plain"))


def step_cell(snapshot: Snapshot, number: int) -> Cell:
    """How many steps it is behind the furthest rank."""

    def behind(rank: Any) -> Cell:
        if rank["step"] is None or snapshot.steps is None:
            return Cell("-", "dim")
        steps = max(snapshot.steps[1] - int(rank["step"]), 0)
        return Cell(str(steps) if steps < _FAR_STEPS else "+", "good" if steps == 0 else "warn")

    return _alive(snapshot, number, behind)


def wait_cell(snapshot: Snapshot, number: int) -> Cell:
    """For how long it has waited in an operation."""

    def waited(rank: Any) -> Cell:
        seconds = float((rank["wait"] or {}).get("seconds") or 0.0)
        digit = next((digit for least_s, digit in reversed(_WAITS) if seconds >= least_s), ".")
        return Cell(digit, "warn" if seconds >= _LONG_S else "plain")

    return _alive(snapshot, number, waited)


def memory_cell(snapshot: Snapshot, number: int) -> Cell:
    """Its memory in tenths of the largest."""

    def used(rank: Any) -> Cell:
        if not rank["rss_bytes"] or not snapshot.most_bytes:
            return Cell("-", "dim")
        tenths = min(int(10 * rank["rss_bytes"] / snapshot.most_bytes), 9)
        return Cell(str(tenths), "plain")

    return _alive(snapshot, number, used)


def late_cell(snapshot: Snapshot, number: int) -> Cell:
    """By how much it comes later than the first to operations."""

    def late(rank: Any) -> Cell:
        if (seconds := rank.get("late_seconds")) is None:
            return Cell("-", "dim")
        digit = next((digit for least_ms, digit in reversed(_LATE) if 1000 * seconds >= least_ms), ".")
        return Cell(digit, "warn" if seconds >= _LATE_S else "plain")

    return _alive(snapshot, number, late)


METRICS: dict[str, Callable[[Snapshot, int], Cell]] = {
    "state": state_cell,
    "phase": phase_cell,
    "step": step_cell,
    "wait": wait_cell,
    "memory": memory_cell,
    "late": late_cell,
}


@lru_cache(maxsize=1)
def all_cells(snapshot: Snapshot, metric: str) -> list[Cell]:
    """Every rank's cell, made once for a snapshot: a key that is pressed does not make them anew."""
    show = METRICS[metric]
    return [show(snapshot, number) for number in snapshot.numbers]


def legend(metric: str, snapshot: Snapshot) -> Line:
    """What the cells mean; of states only those that occur."""
    if metric == "state":
        seen = [
            Span(f"{cell.char} {name}  ", cell.style) for name, cell in _STATES.items() if snapshot.states.get(name)
        ]
        severities = {mark.severity for mark in snapshot.marks.values() if not mark.slow}
        culprit = Span("! culprit  ", "bad" if "critical" in severities else "warn")
        slow = Span("s slow", _SLOW.style)
        return (*seen, *([culprit] if severities else []), *([slow] if snapshot.slow() else []))
    text = {
        "phase": "  ".join(f"{char} {name}" for name, char in _PHASES.items()) + f"  {_OTHER_PHASE} other",
        "step": f"steps behind the furthest rank  0-9  + {_FAR_STEPS} or more  - not known",
        "wait": "waits for  . less than 1 s  1 1 s  2 3 s  3 10 s  4 30 s  5 1 min  6 5 min  7 10 min  8 30 min  9 1 h",
        "late": "late to operations by  . less than 1 ms  1 1 ms  2 3 ms  3 10 ms  4 30 ms  5 100 ms  6 300 ms  7 1 s"
        "  8 3 s  9 10 s  - not known",
        "memory": f"tenths of the largest resident memory, {size(snapshot.most_bytes)}",
    }[metric]
    return (Span(f"{text}  x ended", "dim"),)


def _mark_style(mark: Mark) -> str:
    return "bad" if mark.severity == "critical" else "warn"


def _alive(snapshot: Snapshot, number: int, show: Callable[[Any], Cell]) -> Cell:
    rank, mark = snapshot.ranks.get(number), snapshot.marks.get(number)
    if rank is None:
        return _STATES[UNREPORTED]
    cell = Cell("x", "dim") if rank["state"] in GONE else show(rank)
    return cell if mark is None else Cell(cell.char, _mark_style(mark))
