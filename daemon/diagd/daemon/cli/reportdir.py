"""The folder of --report: made at the start, and shared with what earlier runs have left in it."""

import fcntl
import os
import re
from dataclasses import dataclass
from pathlib import Path

from diagd.daemon.errors import DiagdError

TRACES = "fr"
_RUN = re.compile(r"(?:fr-)?run(\d+)(?:-|$)")


@dataclass(frozen=True, slots=True)
class ReportDir:
    """The folder, and by what this run's files in it are told from earlier ones'; those are never removed."""

    path: Path
    prefix: str = ""  # of this run's dumps, and of torch's traces
    earlier: tuple[int, int] | None = None  # an earlier run's report, by which it is known again
    taken: Path | None = None  # the folder that was asked for, where another run writes to it at this moment

    def has_new_report(self) -> bool:
        """Whether this run has written a report."""
        return _identity(self.path / "report.json") not in (None, self.earlier)


def open_report_dir(path: Path) -> ReportDir:
    """Make the folder now: after three days of training is too late to learn that it cannot be written.

    Raises:
        DiagdError: It cannot.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".diagd-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as exc:
        why = "it is no folder" if path.exists() and not path.is_dir() else exc.strerror
        raise DiagdError(
            f"--report {path}: cannot be written ({why})",
            help="name a folder that you may write to, such as --report ./diagd-report",
            exit_code=2,
        ) from exc
    wanted = path.absolute()
    path = _own(wanted)
    return ReportDir(path, _free_prefix(path), _identity(path / "report.json"), wanted if path != wanted else None)


def _own(path: Path) -> Path:
    """The folder, or one inside it that no other run writes to now: two would replace each other's report."""
    number, found = 1, path
    while not lock(found):
        number += 1
        found = path / f"run{number}"
        found.mkdir(exist_ok=True)
    return found


def lock(path: Path) -> bool:
    """Hold the folder until this process ends; also true on a file system that has no locks."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return False
    except OSError:
        os.close(fd)
    return True


def _free_prefix(path: Path) -> str:
    """Empty where the folder holds no dumps and traces yet, else `run2-` and so on."""
    dumps = path / "dumps"
    names = [*(p.name for p in path.glob(f"{TRACES}*")), *(p.name for p in dumps.glob("*"))]
    if not names:
        return ""
    return f"run{max((int(found[1]) for name in names if (found := _RUN.match(name))), default=1) + 1}-"


def _identity(path: Path) -> tuple[int, int] | None:
    """A file is always replaced as a whole."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def earlier_files(found: ReportDir) -> str:
    """A line for the person where the folder is not new, or not the one asked for; else empty."""
    if found.taken is not None:
        return f"another run writes its report to {found.taken} now; this run's goes to {found.path}."
    if found.earlier is None and not found.prefix:
        return ""
    kept = f" Its dumps stay; this run's begin with {found.prefix[:-1]}." if found.prefix else ""
    return f"{found.path} holds an earlier run's report, which this run's replaces.{kept}"
