"""Checkpoints that this run has written itself: told again where it reads one.

checkpoint/reread     scalar: a file of this run's own was read before this step; the step at which it was written
"""

import os
import time

from diagd.probes.box.layout import Live
from diagd.probes.marks import KNOWN
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

_STEP, _STEP_NS = int(Live.STEP), int(Live.STEP_NS)


class _OwnFiles:
    """This process's."""

    def __init__(self) -> None:
        self.written: dict[str, int] = {}  # by path, the step under way at the newest time
        self.began_s = time.time()

    def has(self, path: str, file: str) -> bool:
        """Whether some rank of this run has written it.

        Args:
            file: Of it, which is as old as it is.
        """
        return path in self.written or _is_newer(file, self.began_s)

    def wrote(self, path: str) -> int:
        """It has, into this path; the step under way."""
        self.written[path] = step = under_way()
        return step

    def reread(self, path: str, file: str) -> bool:
        """One of them was read; whether it is known when it was written."""
        written = self._written_at(path, file)
        if written:
            SIGNALS.record("checkpoint/reread", float(written), under_way())
            KNOWN.expect(path)
        return bool(written)

    def _written_at(self, path: str, file: str) -> int:
        if path in self.written:
            return self.written[path]
        since_step_s = (time.monotonic_ns() - STATE.live[_STEP_NS]) / 1e9 if STATE.live is not None else 0.0
        return under_way() if _is_newer(file, time.time() - since_step_s) else 0  # by another rank, in this very step


OWN = _OwnFiles()


def under_way() -> int:
    """The step that this rank is in, from 1; 0 where it is not recorded."""
    return max(STATE.live[_STEP], 0) + 1 if STATE.live is not None else 0


def forget() -> None:
    """A child of the process that wrote them has written none."""
    OWN.__init__()  # type: ignore[misc]
    KNOWN.__init__()  # type: ignore[misc]


def _is_newer(path: str, since_s: float) -> bool:
    try:
        return os.stat(path).st_mtime > since_s
    except OSError:
        return False
