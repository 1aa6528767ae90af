"""Where a dump of one rank is being written, and what its parts say where they cannot be had."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from diagd.daemon.agent import readers
from diagd.daemon.agent.discovery import Box
from diagd.daemon.agent.procfs import Procfs, Stat
from diagd.daemon.state.model import Operation, Stack


class NotThere(Exception):
    """A part that cannot be had; the message says why."""


class NothingToWrite(Exception):
    """There is nothing of that kind in this process, and nothing is missing."""


@dataclass(frozen=True, slots=True)
class Target:
    """A process to dump: a rank with a box, or any Python process."""

    rank: int | None  # None: no rank, as far as is known
    pid: int
    label: str  # names its folder: "rank3", or "pid77" of what is none
    box: Box | None = None
    fr_socket: Path | None = None
    stacks_file: Path | None = None
    command: str = ""


@dataclass(slots=True)
class Context:
    """Where a dump of one rank is being written, and what was found on the way."""

    target: Target
    proc: Procfs
    root: Path
    deadline_s: float  # monotonic
    stacks: tuple[Stack, ...] = ()
    operations: tuple[Operation, ...] = ()
    closed: bool = False  # the summary is being written: nothing is added to the folder any more

    @property
    def folder(self) -> Path:
        """The rank's own folder."""
        return self.root / self.target.label

    @property
    def left_s(self) -> float:
        """The time that is left for this dump; never quite none, so that a call that takes it still ends properly."""
        return max(0.05, self.deadline_s - time.monotonic())

    def file(self, path: Path) -> Path:
        """A file to be written.

        Raises:
            NotThere: The dump is over.
        """
        if self.closed:
            raise NotThere("the dump is over")
        return path

    def write_json(self, name: str, value: object) -> None:
        """One file of the rank's folder."""
        self.file(self.folder / name).write_text(json.dumps(value, indent=1, default=str) + "\n", encoding="utf-8")


def stat_of(context: Context) -> Stat | None:
    """The process, as it is when no other dump holds it to read its stack."""
    return readers.undisturbed_stat(context.proc, context.target.pid, min(readers.LOOK_S, context.left_s))
