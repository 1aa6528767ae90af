"""What an agent asks a rank to digest beyond its turn: one request at a time, in the rank's ledger.

The agent writes it into the rank's file and goes its way; the rank looks there as it completes a step. Neither waits
for the other. A request names a step that no rank has reached yet, so that all take the same tensors after that step; a
rank that has made it already says so. The serial is written last, and is 0 meanwhile.

    serial | step | what (bits) | number of targets | targets: row, first, stop, parts
"""

import os
import struct
from typing import NamedTuple

MAX_TARGETS = 16
FIELDS = 4  # of the head and of each target: int64 each
SIZE = 8 * FIELDS * (1 + MAX_TARGETS)
MAX_PARTS = 64  # of a target
_EVERYTHING, _SUMS = 1, 2  # bits
AT_START = 1 << 62  # the serial under which a rank answers what `diagd run` wanted of it before its first step
LATE = -1  # the answer of a rank that was past the step


class Target(NamedTuple):
    """Rows (of the first dimension) of one tensor, to be digested in so many parts, each by itself."""

    row: int  # in the ledger
    first: int
    stop: int
    parts: int

    def edges(self) -> list[int]:
        """Where the parts begin, and where the last one ends; no part is empty."""
        extent = max(self.stop - self.first, 0)
        parts = min(self.parts, extent, MAX_PARTS)
        return [self.first + extent * part // parts for part in range(parts + 1)] if parts > 0 else []


class Request(NamedTuple):
    """Digest these after this step, where `everything` all else that is compared as well, and where `sums` tell what
    all tensors add up to (sums.py)."""

    serial: int  # from 1
    step: int
    everything: bool = False
    targets: tuple[Target, ...] = ()
    sums: bool = False


def write(fd: int, at: int, request: Request) -> None:
    """Put the request into the file at this offset.

    Raises:
        OSError: The file cannot be written.
        ValueError: There are too many targets.
    """
    if len(request.targets) > MAX_TARGETS:
        raise ValueError(f"{len(request.targets)} targets in a request; at most {MAX_TARGETS} have room")
    what = _EVERYTHING * request.everything | _SUMS * request.sums
    numbers = [request.step, what, len(request.targets), *(n for t in request.targets for n in t)]
    os.pwrite(fd, bytes(8), at)  # not through a map: of a file that was cut off, that would be the writer's death
    os.pwrite(fd, struct.pack(f"<{len(numbers)}q", *numbers), at + 8)
    os.pwrite(fd, struct.pack("<q", request.serial), at)


def read(numbers: memoryview, at: int) -> Request | None:
    """The request there; None where there is none, or it is just being written. `at`: in numbers."""
    serial, step, what, count = numbers[at : at + FIELDS]
    if not (serial > 0 and 0 <= count <= MAX_TARGETS):
        return None
    words = numbers[at + FIELDS : at + FIELDS * (1 + count)].tolist()
    targets = tuple(Target(*words[first : first + FIELDS]) for first in range(0, len(words), FIELDS))
    request = Request(serial, step, bool(what & _EVERYTHING), targets, bool(what & _SUMS))
    return request if numbers[at] == serial else None
