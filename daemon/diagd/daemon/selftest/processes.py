"""The processes of one drill, by a mark in their environment, wherever they went."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "DIAGD_SELFTEST"
_OF_THE_JOB = b"DIAGD_DIR="  # the job's processes have it, diagd's own beside them have not


def kill_marked(mark: str, *, job_only: bool = False, proc: Path = Path("/proc")) -> int:
    """Kill all that carry the mark, or the job's alone; how many there were."""
    found = [pid for pid, in_job in _marked(mark, proc) if in_job or not job_only]
    for pid in found:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def _marked(mark: str, proc: Path) -> Iterator[tuple[int, bool]]:
    wanted = f"{MARK}={mark}".encode()
    for folder in proc.iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):  # it has ended, or is another user's
                entries = (folder / "environ").read_bytes().split(b"\0")
                if wanted in entries:
                    yield int(folder.name), any(entry.startswith(_OF_THE_JOB) for entry in entries)
