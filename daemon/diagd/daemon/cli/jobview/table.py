"""One row for each rank, with as many columns as the window has room for."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from diagd.daemon.cli.jobview.cells import METRICS
from diagd.daemon.cli.jobview.snapshot import UNREPORTED, Json, Snapshot, wait_text
from diagd.daemon.cli.jobview.text import Line, Span, cells, clean, duration, fit, short, size

HEADINGS = ("RANK", "STATE", "STEP", "PHASE", "PROGRESS", "LATE", "WAITS", "MEMORY", "PID", "HOST")
_RIGHT = frozenset({"RANK", "STEP", "LATE", "MEMORY", "PID"})
_WIDEST = {"PHASE": 14, "WAITS": 36, "HOST": 24}
_NARROW = {"PHASE": 10, "WAITS": 20, "HOST": 12}
# Where there is no room for all: the first goes first.
_DISPENSABLE = ("PID", "MEMORY", "PROGRESS", "LATE", "HOST", "PHASE", "WAITS", "STEP")
_GAP = "  "


class Layout(NamedTuple):
    """The columns of a table, and how wide each is."""

    names: tuple[str, ...]
    widths: tuple[int, ...]


def row(rank: Json, waits: Mapping[int, str]) -> dict[str, str]:
    """A rank's cells by heading."""
    idle_s, step = rank["seconds_since_progress"], rank["step"]
    return {
        "RANK": str(rank["rank"]),
        "STATE": str(rank["state"]),
        "STEP": "-" if step is None else str(step),
        "PHASE": clean(rank["phase"]),
        "PROGRESS": "-" if idle_s is None else f"{duration(float(idle_s))} ago",
        "LATE": short(rank.get("late_seconds")),
        "WAITS": wait_text(rank, waits.get(rank["rank"], "-")),
        "MEMORY": size(rank["rss_bytes"]) if rank["rss_bytes"] else "-",
        "PID": "-" if rank["pid"] is None else str(rank["pid"]),
        "HOST": clean(rank["host"] or rank["node"] or "-"),
    }


class Table:
    """The rows of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        absent = dict.fromkeys(HEADINGS, "-")
        self._rows: Sequence[Mapping[str, str]] = [
            row(snapshot.ranks[n], snapshot.waits)
            if n in snapshot.ranks
            else {**absent, "RANK": str(n), "STATE": UNREPORTED}
            for n in snapshot.numbers
        ]
        self._names = tuple(name for name in HEADINGS if name != "LATE" or any(r[name] != "-" for r in self._rows))
        self._natural = {name: max([len(name), *(cells(r[name]) for r in self._rows)]) for name in HEADINGS}

    def layout(self, width: int) -> Layout:
        """The columns for a window of `width` cells; long names are shortened before columns are left out."""
        for dropped in range(len(_DISPENSABLE) + 1):
            names = tuple(name for name in self._names if name not in _DISPENSABLE[:dropped])
            for limits in (_WIDEST, _NARROW):
                widths = tuple(min(self._natural[name], limits.get(name, 1 << 30)) for name in names)
                if 2 + sum(widths) + len(_GAP) * (len(names) - 1) <= width:
                    return Layout(names, widths)
        return Layout(names, widths)

    def heading(self, layout: Layout) -> Line:
        """The line above the rows."""
        return (Span(_joined(dict(zip(HEADINGS, HEADINGS, strict=True)), layout, " "), "title"),)

    def line(self, place: int, layout: Layout, *, chosen: bool = False) -> Line:
        """The row at a place."""
        cell = METRICS["state"](self._snapshot, self._snapshot.numbers[place])
        mark = cell.char if cell.char in "!s" else " "
        return (
            Span(_joined(self._rows[place], layout, mark), "plain" if cell.style == "good" else cell.style, chosen),
        )


def _joined(row: Mapping[str, str], layout: Layout, mark: str) -> str:
    pairs = zip(layout.names, layout.widths, strict=True)
    return f"{mark} " + _GAP.join(fit(row[name], width, right=name in _RIGHT) for name, width in pairs)


@lru_cache(maxsize=1)
def table_of(snapshot: Snapshot) -> Table:
    """The table of a snapshot, made once: a key that is pressed does not make it anew."""
    return Table(snapshot)
