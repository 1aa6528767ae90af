"""A job's numbers as arrays over its ranks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEVER = -1.0  # a time that has not come


@dataclass(slots=True)
class Columns:
    """The arrays, one row a rank; a row means something only where `known`."""

    known: NDArray[np.bool_]
    is_rank: NDArray[np.bool_]
    status: Ints
    pid: Ints
    step: Ints
    operations: Ints
    io_bytes: Ints
    rss_bytes: Ints
    attempt: Ints
    seen_s: Floats
    step_s: Floats
    phase_s: Floats
    heartbeat_s: Floats
    wait_s: Floats
    said_s: Floats
    main_cpu_s: Floats
    other_cpu_s: Floats
    children_cpu_s: Floats
    overhead_s: Floats
    step_interval_s: Floats  # smoothed; NEVER before two steps were seen
    # Each total at its mark, and when that was.
    main_cpu_s_mark: Floats
    main_cpu_s_marked_s: Floats
    other_cpu_s_mark: Floats
    other_cpu_s_marked_s: Floats
    children_cpu_s_mark: Floats
    children_cpu_s_marked_s: Floats
    io_bytes_mark: Floats
    io_bytes_marked_s: Floats
    rss_bytes_mark: Floats
    rss_bytes_marked_s: Floats
    # Signs of life, as times. CPU alone says little of a rank whose interpreter does not move.
    first_s: Floats  # when it was seen first; a watch that was started again sees a process that is old
    main_cpu_moved_s: Floats
    other_cpu_moved_s: Floats
    children_moved_s: Floats
    io_moved_s: Floats
    memory_moved_s: Floats
    program_moved_s: Floats  # a step, an operation or a phase
    frames_moved_s: Floats  # another stack than at the last look
    history_s: Floats  # when the finished operations were last read


_BOOLS = ("known", "is_rank")
_INTS = ("status", "pid", "step", "operations", "io_bytes", "rss_bytes", "attempt")


def empty_columns(size: int) -> Columns:
    made: dict[str, Any] = {}
    for name in Columns.__slots__:
        if name in _BOOLS:
            made[name] = np.zeros(size, dtype=np.bool_)
        elif name in _INTS:
            made[name] = np.full(size, -1 if name == "step" else 0, dtype=np.int64)
        else:
            made[name] = np.full(size, NEVER, dtype=np.float64)
    return Columns(**made)
