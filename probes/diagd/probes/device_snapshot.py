"""Two snapshots of a device that fills, some steps apart, with the stacks of what was allocated in between and kept.

torch's recording of allocations costs each of them a stack, so it is on only between the two, once in a process, and
only where what is allocated after each step has risen steadily and would fill the device soon. A script that records by
itself is left alone. The files are what torch's memory viewer opens (pytorch.org/memory_viz).
"""

import os
import pickle
import sys
import tempfile
from collections import deque
from typing import Any

from diagd.probes.signals import SIGNALS
from diagd.probes.sites import kind_of_file
from diagd.probes.state import STATE

SAMPLES = 24  # of half a second: what is judged
RISING = 0.9  # of the steps from one sample to the next but two
LEAST_BYTES = 64 * 1024 * 1024
LEAST_PART = 0.02  # of the device
SOON_STEPS = 2000  # until it is full
APART_STEPS = 20  # between the two snapshots
ENTRIES = 50_000  # allocations that torch remembers
_STRIDE = 3


class Watch:
    """One process's device."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=SAMPLES)
        self._armed_at = 0
        self._before: dict[str, int] = {}
        self._done = False

    def note(self, step: int, allocated: float, total: float) -> None:
        """Take a sample after a step; arms, or takes the second snapshot, where it is time for that."""
        if self._done:
            return
        if self._armed_at:
            if step - self._armed_at >= APART_STEPS:
                self._disarm(step)
            return
        self._seen.append((step, allocated))
        if self._fills(total):
            self._arm(step)

    def _fills(self, total: float) -> bool:
        if len(self._seen) < SAMPLES or total <= 0:
            return False
        seen = list(self._seen)
        rises = [b[1] > a[1] for a, b in zip(seen, seen[_STRIDE:], strict=False)]
        grown, steps = seen[-1][1] - seen[0][1], seen[-1][0] - seen[0][0]
        if sum(rises) < RISING * len(rises) or grown < max(LEAST_BYTES, LEAST_PART * total) or steps <= 0:
            return False
        return (total - seen[-1][1]) / (grown / steps) < SOON_STEPS

    def _arm(self, step: int) -> None:
        memory, backend = _torchs()
        self._done = True  # whatever comes of it, once
        if memory is None or backend._cuda_isHistoryEnabled():
            STATE.note("no memory snapshot: torch cannot record allocations, or the script does so itself")
            return
        memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=ENTRIES)
        try:
            self._before = _write(memory, "1")
        except OSError:
            memory._record_memory_history(enabled=None)
            raise
        self._done, self._armed_at = False, step

    def _disarm(self, step: int) -> None:
        memory, _ = _torchs()
        self._done = True
        if memory is None:
            return
        try:
            after = _write(memory, "2")
        finally:
            memory._record_memory_history(enabled=None)
        grown = {site: size - self._before.get(site, 0) for site, size in after.items()}
        site, size = max(grown.items(), key=lambda entry: entry[1], default=("", 0))
        if size > 0:
            SIGNALS.fact("memory/device_site", f"{site}\t{size}\t{step - self._armed_at}", step)
        SIGNALS.fact("memory/snapshot", _path("2"), step)


def _torchs() -> tuple[Any, Any]:
    """torch's private parts for this; None where one is absent."""
    torch = sys.modules.get("torch")
    memory = getattr(getattr(torch, "cuda", None), "memory", None)
    backend = getattr(torch, "_C", None)
    there = all(hasattr(memory, name) for name in ("_record_memory_history", "_snapshot"))
    return (memory, backend) if there and hasattr(backend, "_cuda_isHistoryEnabled") else (None, None)


def _path(number: str) -> str:
    """Not in the run directory: that may be in shared memory, which the job's own workers need."""
    return os.path.join(tempfile.gettempdir(), f"diagd-{os.getuid()}-{os.getpid()}.memory-{number}.pickle")


def _write(memory: Any, number: str) -> dict[str, int]:
    """Write a snapshot; the bytes in use by the site that allocated them, as far as that was recorded."""
    snapshot = memory._snapshot()
    fd = os.open(_path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        pickle.dump(snapshot, file)
    return in_use(snapshot)


def in_use(snapshot: dict[str, Any]) -> dict[str, int]:
    """Bytes in use by site ("function\\tfile\\tline"), the innermost of the user's own, else the innermost."""
    found: dict[str, int] = {}
    for segment in snapshot.get("segments", ()):
        for block in segment.get("blocks", ()):
            frames = block.get("frames") or ()
            if block.get("state") == "active_allocated" and frames:
                frame = next((f for f in frames if kind_of_file(f.get("filename", "")) == 2), frames[0])
                site = f"{frame.get('name', '')}\t{frame.get('filename', '')}\t{frame.get('line', 0)}"
                found[site] = found.get(site, 0) + int(block.get("requested_size") or block.get("size", 0))
    return found
