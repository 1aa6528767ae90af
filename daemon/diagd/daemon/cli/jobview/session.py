"""`diagd top` on a terminal: keys and news in, frames out, until the person or the job has had enough."""

import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from diagd.daemon.cli.jobview.feed import Feed, News
from diagd.daemon.cli.jobview.frame import frame
from diagd.daemon.cli.jobview.pages import stack_text
from diagd.daemon.cli.jobview.screen import Screen, open_screen
from diagd.daemon.cli.jobview.snapshot import Snapshot
from diagd.daemon.cli.jobview.ui import STACKS, Action, Frame, Ui, press

if TYPE_CHECKING:
    from diagd.daemon.agent.discovery import Job

DUMP_S = 12.0  # a dump takes 10 s at most; leaving waits for it
_DEAF = 20  # times that the terminal had something to read and gave no key: it is gone
_OLD = "what is shown may be old"
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Ended(Exception):
    """A signal asks the program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Session:
    """One look at one job."""

    def __init__(self, job: "Job", name: str, interval_s: float) -> None:
        self._name = name
        self._ui = Ui()
        self._snapshot: Snapshot | None = None
        self._frame = Frame((), 0, 1, 1)
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._feed = Feed(job, interval_s, self._wake_w)
        self._words: list[str] = []
        self._over = False
        self._deaf = 0

    def run(self) -> list[str]:
        """Show the job until a key or its end; the lines to print once the terminal is given back.

        Raises:
            NoScreen: The terminal cannot be drawn on.
        """
        try:
            with _signals(self._wake_w), open_screen() as screen:
                self._feed.start()
                self._draw(screen)
                while not self._over:
                    self._wait(screen)
                    self._draw(screen)
        except Ended as exc:
            self._feed.stop()
            _die_of(exc.number)
        finally:
            self._feed.stop()
        self._await_dump()
        return self._words

    def _draw(self, screen: Screen) -> None:
        width, height = screen.size
        self._frame = frame(self._snapshot, self._ui, width, height, f"reading job {self._name} …")
        self._ui.top = self._frame.top if self._ui.page == "ranks" else self._ui.top
        screen.draw(self._frame.lines)

    def _wait(self, screen: Screen) -> None:
        ready, _, _ = select.select([sys.stdin, self._wake_r], [], [])
        if self._wake_r in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_r, 1 << 16)
            while not self._feed.news.empty():
                self._take(self._feed.news.get())
        if sys.stdin in ready:
            pressed = list(screen.keys())
            for key in filter(None, pressed):
                self._act(press(key, self._ui, self._snapshot, self._frame))
            self._deaf = 0 if pressed else self._deaf + 1
            self._over = self._over or self._deaf > _DEAF

    def _act(self, action: Action | None) -> None:
        if action is Action.QUIT:
            self._over = True
        elif action is Action.DUMP:
            self._dump()
        elif action is Action.STACKS and self._snapshot is not None:
            rank = self._snapshot.numbers[self._ui.place(self._snapshot)]
            self._ui.open(STACKS)
            self._ui.text_title, self._ui.text = f"reading the stacks of rank {rank} …", ()
            self._feed.read_stacks(rank, str(self._snapshot.ranks.get(rank, {}).get("node") or ""))

    def _dump(self) -> None:
        if self._feed.busy("dump"):
            self._ui.said = "a dump is being written already"
        else:
            self._ui.said = "dumping …"
            self._feed.dump(fresh_folder(self._name))

    def _take(self, news: News) -> None:
        if news.what == "snapshot":
            self._snapshot = news.value
            if self._ui.said.startswith(_OLD):
                self._ui.said = ""
        elif news.what == "failed":
            self._ui.said = f"{_OLD}: {news.value}"
        elif news.what == "ending":
            self._ui.said = "the job has ended; its last report is being written"
        elif news.what == "ended":
            self._words, self._over = [*self._words, *news.value], True
        elif news.what == "stacks":
            rank, found = news.value
            self._ui.text_title = f"stacks of rank {rank} at {time.strftime('%H:%M:%S')}; s reads them again"
            self._ui.text = stack_text(found)
        else:
            self._ui.said = str(news.value)
            if news.what == "dump":
                self._words.append(str(news.value))

    def _await_dump(self) -> None:
        if self._feed.busy("dump"):
            click.echo("diagd: the dump is being finished", err=True)
        self._feed.stop(DUMP_S)
        while not self._feed.news.empty():
            news = self._feed.news.get()
            if news.what == "dump":
                self._words.append(str(news.value))


def fresh_folder(name: str) -> Path:
    """Where to dump: a name in the working directory that is not taken yet."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    base = Path(f"diagd-dump-{plain}-{time.strftime('%H%M%S')}")
    return next(path for n in range(1, 1000) if not (path := Path(f"{base}-{n}") if n > 1 else base).exists())


@contextmanager
def _signals(wake_fd: int) -> Iterator[None]:
    """A resize wakes the loop; a signal that ends the program gives the terminal back first."""

    def end(number: int, stack: FrameType | None) -> None:
        raise Ended(number)

    wanted: dict[signal.Signals, Callable[[int, FrameType | None], None]] = dict.fromkeys(_ENDING, end)
    wanted[signal.SIGWINCH] = lambda number, stack: None
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    old_fd = signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in before.items():
            signal.signal(number, handler)


def _die_of(number: int) -> None:
    """End as the signal would have ended us."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
