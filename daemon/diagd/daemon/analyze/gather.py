"""Read many ranks' dumps, on all cores where there is much to read."""

import gc
import multiprocessing
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from diagd.daemon.analyze.dumpfile import RankDump, rank_in, read
from diagd.daemon.analyze.plain import NotADump

WORTH_PROCESSES_BYTES = 24 * 1024 * 1024  # starting one takes half a second
MOST_PROCESSES = 16
_BATCH = 4  # files a process reads before it answers

Read = tuple[Path, RankDump | str]  # the dump, or why it is none
Progress = Callable[[int, int], None]  # done, of


@dataclass(slots=True)
class Gathered:
    """What was read."""

    dumps: dict[int, RankDump] = field(default_factory=dict)
    problems: dict[Path, str] = field(default_factory=dict)  # file -> why it is no dump
    unread: dict[int, str] = field(default_factory=dict)  # rank -> why its dump says nothing
    ranks_in: dict[Path, set[int]] = field(default_factory=dict)  # folder -> the ranks of which it has a dump

    def apart(self) -> list[Path]:
        """Folders side by side that have dumps of the same rank, and so are of several looks or jobs; mostly none.

        One that lies inside the other holds what was put aside.
        """
        places = list(self.ranks_in)
        return [one for one in places if any(self._rival(one, other) for other in places)]

    def _rival(self, one: Path, other: Path) -> bool:
        nested = one == other or one in other.parents or other in one.parents
        return not nested and bool(self.ranks_in[one] & self.ranks_in[other])


def gather(files: Sequence[Path], progress: Progress = lambda done, of: None) -> Gathered:
    """Read all files; those that are no dumps are named, and hold up no other."""
    found = Gathered()
    for done, (path, dump) in enumerate(_read(files), start=1):
        progress(done, len(files))
        if isinstance(dump, str):
            found.problems[path] = dump
        else:
            _keep(found, dump)
    forms = {_form(dump.path) for dump in found.dumps.values()}
    for path, why in found.problems.items():
        if _form(path) in forms and (rank := rank_in(path.name)) not in found.dumps:
            found.unread[rank] = f"left a dump that cannot be used: {path.name} {why}"
    return found


def _form(path: Path) -> str:
    """Equal for the files of different ranks: a file of another form that cannot be read is no rank's dump."""
    return re.sub(r"\d+", "#", path.name)


def _keep(found: Gathered, dump: RankDump) -> None:
    """Of several dumps of a rank the newest counts."""
    found.ranks_in.setdefault(dump.path.parent, set()).add(dump.rank)
    known = found.dumps.get(dump.rank)
    older = known if known is None or known.taken_s <= dump.taken_s else dump
    if older is not dump:
        found.dumps[dump.rank] = dump
    if known is not None and older is not None:
        kept = found.dumps[dump.rank].path
        found.problems[older.path] = f"is not used: {kept} is a newer dump of rank {dump.rank}"


def _read(files: Sequence[Path]) -> Iterator[Read]:
    size = sum(_size(path) for path in files)
    processes = min(len(os.sched_getaffinity(0)), MOST_PROCESSES, len(files))
    if processes < 2 or size < WORTH_PROCESSES_BYTES:
        yield from _read_some(files)
        return
    batches = [files[start : start + _BATCH] for start in range(0, len(files), _BATCH)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        answers = [pool.submit(_read_batch, batch) for batch in batches]
        for batch, answer in zip(batches, answers, strict=True):
            try:
                yield from answer.result()
            except BrokenProcessPool:
                yield from (
                    (path, "could not be read: the process that read it, or one beside it, died") for path in batch
                )


def _read_batch(files: Sequence[Path]) -> list[Read]:
    return list(_read_some(files))


def _read_some(files: Iterable[Path]) -> Iterator[Read]:
    # Thousands of small containers and no cycles: looking for those takes more time than reading.
    gc.disable()
    try:
        for path in files:
            try:
                yield path, read(path)
            except NotADump as exc:
                yield path, str(exc)
    finally:
        gc.enable()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
