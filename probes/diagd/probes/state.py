"""This process as the probes know it: its box, and whether they record at the moment."""

from __future__ import annotations

from _thread import get_ident

from diagd.probes.fast import FAST, Fast, forget
from diagd.probes.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from diagd.probes.box.writer import BoxWriter


class State:
    """One for each process, reset in a forked child."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.listeners: list[Callable[[bool], None]] = []  # told when recording begins or ends
        self.notes: list[str] = []
        self.off_bits = 0
        self.forked = False
        self.on_note: Callable[[], None] | None = None
        self.forget()

    def forget(self) -> None:
        """There is no box (yet, or no longer)."""
        forget()
        self.box: BoxWriter | None = None
        self.live: Any = None  # the box's live numbers; None exactly where there is no box
        self.is_rank = False
        self.recording = False
        self.trainer = get_ident()  # the thread that trains: the only one whose doings are phases
        self.backward_depth = 0
        self.held = 0  # depth of phases that the script itself has named
        self.evaluating = False
        self.exit_noted = False
        self.engine = False  # one counts the steps, each when it is all over: later than its optimizers make theirs
        self.detail = 2  # 2 all, 1 without shapes, 0 without call sites either (shed for the budget)

    def record(self, on: bool) -> None:
        """Begin or end to record."""
        self.recording = on
        FAST[Fast.PLAIN] = 0
        for listener in self.listeners:
            listener(on)

    def count_error(self) -> None:
        """A probe failed."""
        if self.box is not None:
            from diagd.probes.box.layout import Live

            self.live[Live.PROBE_ERRORS] += 1

    def note(self, text: str, instead_of: str = "") -> None:
        """Keep, once, why something is not watched; it is shown with the identity.

        Args:
            text: What is told.
            instead_of: What earlier notes begin with that hold no longer.
        """
        if text in self.notes:
            return
        if instead_of:
            self.notes[:] = [note for note in self.notes if not note.startswith(instead_of)]
        if len(self.notes) < 50:
            self.notes.append(text)
            if self.on_note is not None:
                self.on_note()


STATE = State()
