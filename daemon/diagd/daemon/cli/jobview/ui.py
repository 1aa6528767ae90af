"""What a person is looking at, and what each key does to it. No terminal, no clock."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from diagd.daemon.cli.jobview.cells import METRICS
from diagd.daemon.cli.jobview.snapshot import Snapshot
from diagd.daemon.cli.jobview.text import Line

RANKS, STACKS, INCIDENTS, GROUPS, HELP = "ranks", "stacks", "incidents", "groups", "help"
COMPACT_ABOVE = 64  # ranks; a cell for each instead of a row
_DIGITS = 9


class Action(Enum):
    """What a key asks of the world outside."""

    QUIT = "quit"
    STACKS = "stacks"
    DUMP = "dump"


@dataclass(slots=True)
class Ui:
    """The view's own state."""

    selected: int = 0  # a rank
    top: int = 0  # the first row that is shown
    page: str = RANKS
    scroll: int = 0  # the first line of a page of text that is shown
    metric: str = "state"
    table: bool | None = None  # a person's choice between rows and cells; None: by the number of ranks
    typed: str | None = None  # of the rank to jump to, while it is being typed
    said: str = ""  # one line about what was done
    text_title: str = ""
    text: tuple[str, ...] = ()  # of the page of stacks

    def shows_table(self, snapshot: Snapshot) -> bool:
        """Whether each rank has a row, not a cell."""
        return len(snapshot.numbers) <= COMPACT_ABOVE if self.table is None else self.table

    def place(self, snapshot: Snapshot) -> int:
        """Where the selected rank stands among all; the nearest one where it is gone."""
        return max(min(bisect_left(snapshot.numbers, self.selected), len(snapshot.numbers) - 1), 0)

    def open(self, page: str) -> None:
        """Go to a page, at its beginning."""
        self.page, self.scroll, self.said = page, 0, ""


@dataclass(frozen=True, slots=True)
class Frame:
    """What a window shows, and what the arrow keys need to know of it."""

    lines: tuple[Line, ...]
    top: int  # the first row or line that is shown
    across: int  # ranks in a row
    rows: int  # that are visible


def press(key: str, ui: Ui, snapshot: Snapshot | None, frame: Frame) -> Action | None:
    """Change the view as the key says; what remains to be done outside."""
    if ui.typed is not None:
        _type(key, ui, snapshot)
    elif key == "?":
        ui.open(RANKS if ui.page == HELP else HELP)
    elif key in ("esc", "q", "backspace") and ui.page != RANKS:
        ui.open(RANKS)
    elif key == "q":
        return Action.QUIT
    elif snapshot is not None:
        return _of_job(key, ui, snapshot, frame)
    return None


def _of_job(key: str, ui: Ui, snapshot: Snapshot, frame: Frame) -> Action | None:
    if key in ("enter", "s") and snapshot.numbers:
        return Action.STACKS
    if key == "d":
        return Action.DUMP
    if key in _PAGES:
        ui.open(RANKS if ui.page == _PAGES[key] else _PAGES[key])
    elif key == "/":
        ui.page, ui.typed = RANKS, ""
    elif ui.page == RANKS:
        _move(key, ui, snapshot, frame)
    else:
        _scroll(key, ui, frame)
    return None


_PAGES = {"i": INCIDENTS, "o": GROUPS}


def _type(key: str, ui: Ui, snapshot: Snapshot | None) -> None:
    typed = ui.typed or ""
    if key == "esc" or (key == "backspace" and not typed):
        ui.typed = None
    elif key == "backspace":
        ui.typed = typed[:-1]
    elif key == "enter":
        ui.typed = None
        if typed and snapshot is not None:
            _jump(int(typed), ui, snapshot)
    elif len(key) == 1 and key in "0123456789" and len(typed) < _DIGITS:
        ui.typed = typed + key


def _jump(rank: int, ui: Ui, snapshot: Snapshot) -> None:
    if rank in snapshot.ranks or rank in snapshot.numbers:
        ui.selected, ui.said = rank, ""
    else:
        ui.said = f"there is no rank {rank}"


def _move(key: str, ui: Ui, snapshot: Snapshot, frame: Frame) -> None:
    ui.said = ""
    if key in _STEPS:
        place = ui.place(snapshot) + _STEPS[key](frame)
        last = len(snapshot.numbers) - 1
        if snapshot.numbers:
            ui.selected = snapshot.numbers[max(min(place, last), 0)]
    elif key in ("n", "N"):
        _next_notable(ui, snapshot, 1 if key == "n" else -1)
    elif key == "m":
        names = list(METRICS)
        ui.metric = names[(names.index(ui.metric) + 1) % len(names)]
    elif key == "t":
        ui.table = not ui.shows_table(snapshot)


_FAR = 1 << 40
_STEPS: dict[str, Callable[[Frame], int]] = {
    "up": lambda frame: -frame.across,
    "k": lambda frame: -frame.across,
    "down": lambda frame: frame.across,
    "j": lambda frame: frame.across,
    "left": lambda frame: -1,
    "h": lambda frame: -1,
    "right": lambda frame: 1,
    "l": lambda frame: 1,
    "pgup": lambda frame: -frame.across * max(frame.rows, 1),
    "pgdn": lambda frame: frame.across * max(frame.rows, 1),
    "home": lambda frame: -_FAR,
    "g": lambda frame: -_FAR,
    "end": lambda frame: _FAR,
    "G": lambda frame: _FAR,
}


def _next_notable(ui: Ui, snapshot: Snapshot, direction: int) -> None:
    found = snapshot.notable()
    if not found:
        ui.said = "no rank stands out"
    elif ui.selected in found:
        ui.selected = found[(found.index(ui.selected) + direction) % len(found)]
    else:
        ui.selected = found[0 if direction > 0 else -1]


def _scroll(key: str, ui: Ui, frame: Frame) -> None:
    by = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -frame.rows, "pgdn": frame.rows, " ": frame.rows}
    if key in by:
        ui.scroll = max(frame.top + by[key], 0)
    elif key in ("home", "g"):
        ui.scroll = 0
    elif key in ("end", "G"):
        ui.scroll = _FAR
