"""The terminal: draws lines that have changed, reads keys, follows its size, and is left as it was found."""

import curses
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from diagd.daemon.cli.jobview.text import Line

_KEYS = {
    curses.KEY_UP: "up", curses.KEY_DOWN: "down", curses.KEY_LEFT: "left", curses.KEY_RIGHT: "right",
    curses.KEY_PPAGE: "pgup", curses.KEY_NPAGE: "pgdn", curses.KEY_HOME: "home", curses.KEY_END: "end",
    curses.KEY_ENTER: "enter", curses.KEY_BACKSPACE: "backspace", "\n": "enter", "\r": "enter", "\x1b": "esc",
    "\x7f": "backspace", "\b": "backspace", "\x02": "pgup", "\x06": "pgdn",
}  # fmt: skip
_COLOURS = {"good": curses.COLOR_GREEN, "warn": curses.COLOR_YELLOW, "bad": curses.COLOR_RED}
_WITHOUT = {
    "title": curses.A_BOLD,
    "dim": curses.A_DIM,
    "warn": curses.A_BOLD,
    "bad": curses.A_BOLD | curses.A_UNDERLINE,
}
_ESCAPE_MS = 25  # how long an Esc may be the beginning of an arrow


class NoScreen(Exception):
    """The terminal cannot be drawn on; the message says why."""


class Screen:
    """A window that takes the whole terminal; made by `open_screen`."""

    def __init__(self, window: curses.window, styles: Mapping[str, int]) -> None:
        self._window = window
        self._styles = styles
        self._shown: list[Line] = []
        self._size = (0, 0)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in cells, as they are now; a terminal that has changed is drawn anew."""
        now = os.get_terminal_size(sys.stdout.fileno())
        wanted = (now.columns or 80, now.lines or 24)  # a terminal that nobody has told its size says 0
        if wanted != self._size:
            self._size = wanted
            curses.resizeterm(wanted[1], wanted[0])
            self._window.clear()
            self._shown = []
        return wanted

    def draw(self, lines: tuple[Line, ...]) -> None:
        """Show these lines; those that are as before are not touched."""
        for row in range(max(len(lines), len(self._shown))):
            new = lines[row] if row < len(lines) else ()
            if row >= len(self._shown) or new != self._shown[row]:
                self._draw_line(row, new)
        self._shown = list(lines)
        self._window.refresh()

    def _draw_line(self, row: int, spans: Line) -> None:
        with suppress(curses.error):  # the last cell of the last row is written and then refused
            self._window.move(row, 0)
            self._window.clrtoeol()
            for span in spans:
                style = self._styles.get(span.style, 0) | (curses.A_REVERSE if span.chosen else 0)
                self._window.addstr(self._encodable(span.text), style)

    def _encodable(self, text: str) -> str:
        return text if text.isascii() else text.encode(self._window.encoding, "replace").decode(self._window.encoding)

    def keys(self) -> Iterator[str]:
        """The keys that were pressed, by name; letters are themselves, and what has no name is empty."""
        while True:
            try:
                key = self._window.get_wch()
            except curses.error:
                return
            yield _KEYS.get(key) or (key if isinstance(key, str) else "")


def check_terminal() -> None:
    """Find out what the terminal can do.

    Raises:
        NoScreen: It cannot be drawn on. curses itself would end the process.
    """
    name = os.environ.get("TERM", "")
    try:
        curses.setupterm(name or "unknown", sys.stdout.fileno())
    except curses.error as exc:
        raise NoScreen(f"TERM={name}: {exc}") from exc
    if not curses.tigetstr("cup"):
        raise NoScreen(f"TERM={name}: this terminal cannot move its cursor")


@contextmanager
def open_screen() -> Iterator[Screen]:
    """Take the terminal, and give it back as it was, however this is left.

    Raises:
        NoScreen: It cannot be drawn on.
    """
    check_terminal()
    curses.set_escdelay(_ESCAPE_MS)
    with _quiet_errors():
        yield from _taken()


def _taken() -> Iterator[Screen]:
    window = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()
        window.keypad(True)
        window.nodelay(True)
        with suppress(curses.error):  # some terminals cannot hide it
            curses.curs_set(0)
        yield Screen(window, _styles())
    finally:
        window.keypad(False)
        with suppress(curses.error):  # a terminal that is gone
            curses.curs_set(1)
        with suppress(curses.error):
            curses.endwin()


@contextmanager
def _quiet_errors() -> Iterator[None]:
    """Keep what a library writes to standard error from falling into the window."""
    if not os.isatty(2):
        yield
        return
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _styles() -> Mapping[str, int]:
    if os.environ.get("NO_COLOR"):
        return _WITHOUT
    try:
        curses.start_color()
        curses.use_default_colors()
    except curses.error:
        return _WITHOUT
    if not curses.has_colors():
        return _WITHOUT
    made = dict(_WITHOUT)
    for number, (style, colour) in enumerate(_COLOURS.items(), start=1):
        curses.init_pair(number, colour, -1)
        made[style] = curses.color_pair(number) | (curses.A_BOLD if style == "bad" else 0)
    return made
