"""Finds the files of metrics that the ranks write, and follows them.

Read from outside: nothing in the rank is touched, and what a file system does to its readers befalls a thread of its
own here, for which no look waits. Seen are the files that a rank holds open for writing and, as some scripts open and
close a file for each line, those in its working directory that grow.
"""

import os
import re
import stat
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from diagd.daemon.agent.metric_tail import CSV, JSON, TEXT, Sample, Tail

MOST_FILES = 8  # of a rank
_EARLY_ROUNDS, _LATER_EVERY = 120, 8
_PATIENCE_S = 0.05  # a round takes a millisecond or two
_MOST_ENTRIES = 2000  # of a working directory: one with more is no place for logs
_KINDS = (*JSON, *CSV, *TEXT)
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|r|gpu|proc|worker)[_-]?(\d+)(?:\D|$)")
_OTHERS = ("/debug.log", "/debug-internal.log", "/debug-core.log")  # wandb's own
_STANDARD = ("0", "1", "2")  # what is printed is read within the rank

Inode = tuple[int, int]


class Writer(NamedTuple):
    """A rank."""

    rank: int
    pid: int
    step: int


class _Seen(NamedTuple):
    """A file that a rank may write."""

    inode: Inode
    path: str
    name: str
    size: int
    appends: bool
    held: bool  # open in the rank


class MetricFiles:
    """The files of one node's ranks."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)
        self._tails: dict[tuple[int, Inode], Tail] = {}  # by process
        self._begins: dict[Inode, int] = {}  # where to begin in a file that may hold more than this run's
        self._pids: dict[int, int] = {}  # rounds that each was in
        self._rounds = 0
        self._pool = ThreadPoolExecutor(1, "diagd-files")
        self._round: Future[dict[int, list[Sample]]] | None = None

    def news(self, writers: Iterable[Writer]) -> dict[int, list[Sample]]:
        """What the ranks have written, by rank; a round that a file system holds up is not waited for."""
        found: dict[int, list[Sample]] = {}
        if self._round is not None:
            if not self._round.done():
                return found
            found = self._round.result()
        self._round = self._pool.submit(self.look, list(writers))
        wait([self._round], _PATIENCE_S)
        if not self._round.done():
            return found
        for rank, samples in self._round.result().items():
            found.setdefault(rank, []).extend(samples)
        self._round = None
        return found

    def close(self) -> None:
        """Let go of the thread; one that a file system holds is left to it."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def look(self, writers: list[Writer]) -> dict[int, list[Sample]]:
        """One round: find new files, read on in those that are known."""
        self._rounds += 1
        folders: dict[str, list[str]] = {}  # ranks often share their working directory
        due = any(self._is_due(writer.pid) for writer in writers)  # all at once: what several hold is nobody's
        seen = {writer: self._files(writer, folders) for writer in writers if due}
        owners = _owners(seen)
        for writer, files in seen.items():
            for file in files:
                if owners.get(file.inode) == writer.rank:
                    self._follow(writer.pid, file)
        self._pids = {writer.pid: self._pids.get(writer.pid, 0) + 1 for writer in writers}
        for key in [key for key in self._tails if key[0] not in self._pids]:
            del self._tails[key]
        return {writer.rank: samples for writer in writers if (samples := self._read(writer))}

    def _is_due(self, pid: int) -> bool:
        """Whether its files are looked for: often in its first minute, when it opens them."""
        return self._pids.get(pid, 0) < _EARLY_ROUNDS or self._rounds % _LATER_EVERY == 0

    def _files(self, writer: Writer, folders: dict[str, list[str]]) -> list[_Seen]:
        held = [*self._held(writer.pid)]
        # Where to begin is plain of those that are not appended to, and then seen where they lie.
        plain = [file for file in held if not file.appends]
        return [*plain, *self._lying(writer.pid, folders), *(file for file in held if file.appends)]

    def _held(self, pid: int) -> Iterable[_Seen]:
        """What the process has open for writing."""
        base = f"{self._proc}/{pid}/fd"
        for number in _listed(base):
            with suppress(OSError):
                path = f"{base}/{number}"
                name = os.readlink(path)  # noqa: PTH115 - below /proc
                if number not in _STANDARD and name.lower().endswith(_KINDS) and not name.endswith(_OTHERS):
                    flags = _flags(f"{self._proc}/{pid}/fdinfo/{number}")
                    about = os.stat(path)  # noqa: PTH116 - of a descriptor
                    if flags & os.O_ACCMODE and stat.S_ISREG(about.st_mode):
                        appends = bool(flags & os.O_APPEND)
                        yield _Seen((about.st_dev, about.st_ino), path, name, about.st_size, appends, True)

    def _lying(self, pid: int, folders: dict[str, list[str]]) -> Iterable[_Seen]:
        """Files of records in its working directory; logs may be anybody's."""
        folder = f"{self._proc}/{pid}/cwd"
        where = ""
        with suppress(OSError):
            where = os.readlink(folder)  # noqa: PTH115 - below /proc
        if where not in folders:
            folders[where] = _listed(folder)
        for name in folders[where]:
            if name.lower().endswith((*JSON[:2], *CSV)):
                with suppress(OSError):
                    about = os.stat(f"{folder}/{name}")  # noqa: PTH116 - below /proc
                    if stat.S_ISREG(about.st_mode):
                        inode = about.st_dev, about.st_ino
                        yield _Seen(inode, f"{folder}/{name}", f"{where}/{name}", about.st_size, True, False)

    def _follow(self, pid: int, file: _Seen) -> None:
        """Begin to read a file: at its beginning where this run has made it, else at what has been added."""
        made = not file.held and pid in self._pids  # it was not there when the rank was looked at first
        begin = self._begins.setdefault(file.inode, 0 if made else file.size) if file.appends else 0
        if (pid, file.inode) in self._tails or sum(owner == pid for owner, _ in self._tails) >= MOST_FILES:
            return
        if file.held or file.size > begin:
            self._tails[pid, file.inode] = Tail((file.path, file.name), file.inode, begin)

    def _read(self, writer: Writer) -> list[Sample]:
        found: list[Sample] = []
        for key, tail in list(self._tails.items()):
            if key[0] == writer.pid:
                try:
                    samples = tail.read()
                except OSError:
                    del self._tails[key]
                    continue
                self._begins[key[1]] = tail.at  # in case that the rank closes it and opens it again
                found += [s if s.step is not None else s._replace(step=max(writer.step, 1)) for s in samples]
        return found


def _owners(seen: dict[Writer, list[_Seen]]) -> dict[Inode, int]:
    """Whose each file is: of the one rank that holds it, that its name says, or of the first that works there.

    One that several ranks hold open is nobody's: which of them wrote a line is not to be seen.
    """
    ranks = {writer.rank for writer in seen}
    held: dict[Inode, set[int]] = {}
    lying: dict[Inode, set[int]] = {}
    for writer, files in seen.items():
        for file in files:
            named = _RANK.search(os.path.basename(file.name).lower())  # noqa: PTH119 - a name
            rank = int(named[1]) if named and int(named[1]) in ranks and not file.held else writer.rank
            (held if file.held else lying).setdefault(file.inode, set()).add(rank)
    owners = {inode: min(found) for inode, found in lying.items()}
    for inode, found in held.items():
        owners[inode] = next(iter(found)) if len(found) == 1 else -1
    return owners


def _listed(folder: str) -> list[str]:
    try:
        found = os.listdir(folder)  # noqa: PTH208 - below /proc
    except OSError:
        return []
    return found if len(found) <= _MOST_ENTRIES else []


def _flags(path: str) -> int:
    with open(path, encoding="ascii") as file:  # noqa: PTH123 - below /proc
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8)
    return 0
