"""What a window of some size shows of a snapshot: lines of styled text. No terminal, no clock."""

from typing import NamedTuple

from diagd.daemon.cli.jobview import pages
from diagd.daemon.cli.jobview.about import about_lines, incident_lines, states_line, title_line
from diagd.daemon.cli.jobview.cells import legend
from diagd.daemon.cli.jobview.grid import across_of, grid_row
from diagd.daemon.cli.jobview.snapshot import Snapshot
from diagd.daemon.cli.jobview.table import table_of
from diagd.daemon.cli.jobview.text import Line, Span, clip_line, line
from diagd.daemon.cli.jobview.ui import RANKS, Frame, Ui

_SHOWN_GROUPS = 6
_LEAST_BODY = 4  # rows of ranks that the lines around them must leave
_KEYS = "q quit  arrows rank  s stacks  d dump  i incidents  o groups  / jump  n next that stands out  t rows/cells"


def frame(snapshot: Snapshot | None, ui: Ui, width: int, height: int, waiting_for: str = "") -> Frame:
    """Exactly as much as fits into `width` times `height` cells."""
    if snapshot is None or ui.page != RANKS:
        made = _text_page(snapshot, ui, width, height, waiting_for)
    else:
        made = _ranks_page(snapshot, ui, width, height)
    return Frame(tuple(clip_line(spans, width) for spans in made.lines[:height]), made.top, made.across, made.rows)


def _text_page(snapshot: Snapshot | None, ui: Ui, width: int, height: int, waiting_for: str) -> Frame:
    if snapshot is None and ui.page == RANKS:
        return Frame((line(waiting_for, "dim"),), 0, 1, 1)
    text = pages.lines(ui, snapshot, width)
    rows = max(height - 2, 1)
    top = max(min(ui.scroll, len(text) - rows), 0)
    shown = text[top : top + rows]
    more = f"  lines {top + 1}-{top + len(shown)} of {len(text)}" if len(text) > rows else ""
    foot = ui.said or f"q back  arrows, PgUp, PgDn scroll{more}"
    blank = [line("")] * (rows - len(shown))
    return Frame((line(pages.title(ui), "title"), *shown, *blank, line(foot, "dim")), top, 1, rows)


def _ranks_page(snapshot: Snapshot, ui: Ui, width: int, height: int) -> Frame:
    """The ranks, between a head and a foot that give way where the window is low."""
    needed = _needed(snapshot, ui, width)
    for level in _LEVELS:
        head, foot = _head(snapshot, level), _foot(snapshot, ui, level)
        room = height - len(head) - len(foot) - 1
        if room >= (needed if level.roomy else min(needed, _LEAST_BODY)):
            break
    body, top, across, rows = _body(snapshot, ui, width, max(room, 1))
    blank = [line("")] * (room - len(body))
    last = _last_line(snapshot, ui, top * across, across * rows)
    return Frame((*head, *body, *blank, *foot, last), top, across, rows)


class _Level(NamedTuple):
    """How much stands around the ranks."""

    incidents: int
    states: bool
    about: bool
    roomy: bool


_LEVELS = (
    _Level(3, True, True, True),
    _Level(3, True, True, False),
    _Level(1, True, True, False),
    _Level(1, False, False, False),
    _Level(0, False, False, False),
)


def _head(snapshot: Snapshot, level: _Level) -> list[Line]:
    states = [states_line(snapshot)] if level.states else []
    blank = [line("")] if level.roomy else []
    return [title_line(snapshot), *states, *incident_lines(snapshot, level.incidents), *blank]


def _foot(snapshot: Snapshot, ui: Ui, level: _Level) -> list[Line]:
    return [*([line("")] if level.roomy else []), *(about_lines(snapshot, ui) if level.about else [])]


def _needed(snapshot: Snapshot, ui: Ui, width: int) -> int:
    """Lines that show all ranks at once."""
    count = len(snapshot.numbers)
    if not count or ui.shows_table(snapshot):
        return count + 1
    return -(-count // across_of(count, width - len(str(snapshot.numbers[-1])) - 1, 1)) + 1


def _body(snapshot: Snapshot, ui: Ui, width: int, room: int) -> tuple[list[Line], int, int, int]:
    if not snapshot.numbers:
        return [line("no rank has reported yet", "dim")], 0, 1, 1
    if ui.shows_table(snapshot):
        return _table(snapshot, ui, width, room)
    return _grid(snapshot, ui, width, room)


def _table(snapshot: Snapshot, ui: Ui, width: int, room: int) -> tuple[list[Line], int, int, int]:
    table, place = table_of(snapshot), ui.place(snapshot)
    layout = table.layout(width)
    rows = max(room - 1, 1)
    top = _scrolled(ui.top, place, rows, len(snapshot.numbers))
    shown = range(top, min(top + rows, len(snapshot.numbers)))
    body = [table.heading(layout), *(table.line(n, layout, chosen=n == place) for n in shown)]
    return body[-room:] if room == 1 else body, top, 1, rows


def _grid(snapshot: Snapshot, ui: Ui, width: int, room: int) -> tuple[list[Line], int, int, int]:
    count, label = len(snapshot.numbers), len(str(snapshot.numbers[-1]))
    rows = max(room - 1, 1)
    across = across_of(count, width - label - 1, rows)
    in_all = -(-count // across)
    top = _scrolled(ui.top, ui.place(snapshot) // across, rows, in_all)
    body = [grid_row(snapshot, ui, start * across, across, label) for start in range(top, min(top + rows, in_all))]
    body.append(_legend(snapshot, ui))
    groups = pages.group_lines(snapshot)[: _SHOWN_GROUPS + 1]
    if len(body) + 1 + len(groups) <= room:
        body += [line(""), *groups]
    return body[:room], top, across, rows


def _legend(snapshot: Snapshot, ui: Ui) -> Line:
    return (Span(f"{ui.metric}: ", "title"), *legend(ui.metric, snapshot))


def _scrolled(top: int, row: int, rows: int, in_all: int) -> int:
    """The first visible row: as before, moved as little as shows the chosen one."""
    return max(min(max(top, row - rows + 1), row, in_all - rows), 0)


def _last_line(snapshot: Snapshot, ui: Ui, first: int, shown: int) -> Line:
    if ui.typed is not None:
        return line(f"rank: {ui.typed}_   Enter jumps, Esc does not", "title")
    if ui.said:
        return line(ui.said, "title")
    count = len(snapshot.numbers)
    last = min(first + shown, count) - 1
    part = f"ranks {snapshot.numbers[first]}-{snapshot.numbers[last]} of {count}  " if shown < count else ""
    return line(f"{part}? help  {_KEYS}  m cells: {ui.metric}", "dim")


def plain_lines(snapshot: Snapshot, width: int) -> list[Line]:
    """One snapshot without a window: as many lines as it takes."""
    ui = Ui()
    count = len(snapshot.numbers)
    body = [line("no rank has reported yet")]
    if count and ui.shows_table(snapshot):
        table = table_of(snapshot)
        layout = table.layout(width)
        body = [table.heading(layout), *(table.line(place, layout) for place in range(count))]
    elif count:
        label = len(str(snapshot.numbers[-1]))
        across = across_of(count, width - label - 1, 1)
        body = [grid_row(snapshot, ui, start, across, label) for start in range(0, count, across)]
        body += [_legend(snapshot, ui), *pages.group_lines(snapshot)]
    shown = [title_line(snapshot), states_line(snapshot), *incident_lines(snapshot, len(snapshot.open)), *body]
    return [clip_line(spans, width) for spans in shown]
