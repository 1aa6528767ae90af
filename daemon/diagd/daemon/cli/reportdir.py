"""The folder of --report: made at the start, and shared with what earlier runs have left in it."""

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
        raise DiagdError(
            f"--report {path}: cannot be written ({exc.strerror})",
            help="name a folder that you may write to, such as --report ./diagd-report",
            exit_code=85,
        ) from exc
    path = path.absolute()
    return ReportDir(path, _free_prefix(path), _identity(path / "report.json"))


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
    """A line for the person where the folder is not new; empty where it is."""
    if found.earlier is None and not found.prefix:
        return ""
    kept = f" Its dumps stay; this run's begin with {found.prefix[:-1]}." if found.prefix else ""
    return f"{found.path} holds an earlier run's report, which this run's replaces.{kept}"
