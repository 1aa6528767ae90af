"""A cell for each rank, in rows that leave a gap after each node."""

from itertools import groupby

from diagd.daemon.cli.jobview.cells import all_cells
from diagd.daemon.cli.jobview.snapshot import Snapshot
from diagd.daemon.cli.jobview.text import Line, Span
from diagd.daemon.cli.jobview.ui import Ui

NODE = 8  # cells between two gaps: most nodes have so many devices
_ACROSS = (16, 32, 64, 128, 256)


def across_of(count: int, width: int, rows: int) -> int:
    """Ranks in a row of the grid: the fewest with which all rows are seen, else as many as fit."""
    fitting = [n for n in _ACROSS if n + n // NODE - 1 <= width]
    if not fitting:
        return max(width if width < NODE else NODE, 1)
    return next((n for n in fitting if -(-count // n) <= rows), fitting[-1])


def grid_row(snapshot: Snapshot, ui: Ui, start: int, across: int, label: int) -> Line:
    found, chosen = all_cells(snapshot, ui.metric), ui.place(snapshot)
    spans = [Span(f"{snapshot.numbers[start]:>{label}} ", "dim")]
    places = range(start, min(start + across, len(found)))
    for (style, is_chosen), run in groupby(places, key=lambda n: (found[n].style, n == chosen)):
        text = "".join(f"{' ' if n > start and (n - start) % NODE == 0 else ''}{found[n].char}" for n in run)
        if is_chosen and text.startswith(" "):
            spans.append(Span(" "))
            text = text[1:]
        spans.append(Span(text, style, is_chosen))
    return tuple(spans)
