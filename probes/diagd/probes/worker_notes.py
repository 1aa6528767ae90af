"""What forked data workers tell their rank: notes in a piece of memory that both share, and no more than a rank reads.

Each note names the process that the worker belongs to, the seed that its loader gave it and the batch: what another
loader's worker, or another rank that was forked from the same process, has written in its place is not taken for it.
"""

import mmap
import os
import struct
import sys
from typing import Any, NamedTuple

WORKERS = 64
NOTES = 16  # of each worker: more than it is ahead of the rank
VALUES = 9  # three of each generator
_NOTE = struct.Struct("<QQQq" + VALUES * "q")

_memory: list[mmap.mmap] = []


class Note(NamedTuple):
    """What was seen of one batch: its number in its worker, from 1, its samples, and VALUES integers."""

    number: int
    samples: int
    values: tuple[int, ...]


def open_() -> None:
    """Before any worker is forked."""
    _memory[:] = [mmap.mmap(-1, WORKERS * NOTES * _NOTE.size)]


def close() -> None:
    """No more notes are taken."""
    _memory.clear()


def worker() -> Any:
    """This process as torch knows it, where it is a data worker: its id and seed; else None."""
    return getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)


def put(info: Any, note: Note) -> None:
    """In a worker: leave a note."""
    if _memory and info.id < WORKERS:
        at = (info.id * NOTES + note.number % NOTES) * _NOTE.size
        _NOTE.pack_into(_memory[0], at, os.getppid(), info.seed, note.number, note.samples, *note.values)


def get(worker_id: int, seed: int, number: int) -> Note | None:
    """In the rank: a worker's note of that batch; None where it has left none, as where it was not forked."""
    if not _memory or worker_id >= WORKERS:
        return None
    pid, its_seed, its_number, samples, *values = _NOTE.unpack_from(
        _memory[0], (worker_id * NOTES + number % NOTES) * _NOTE.size
    )
    mine = (pid, its_seed, its_number) == (os.getpid(), seed, number)
    return Note(number, samples, tuple(values)) if mine else None
