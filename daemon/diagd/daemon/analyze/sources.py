"""What the paths on the command line are: a recording, a dump folder of diagd's, or flight-recorder dumps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagd.daemon.analyze import folder
from diagd.daemon.analyze.plain import NotADump
from diagd.daemon.analyze.walk import USAGE, below, only_one
from diagd.daemon.errors import DiagdError
from diagd.daemon.record.record import MAGIC


@dataclass(frozen=True, slots=True)
class Source:
    """One of the three; `files` only of dumps."""

    kind: str  # recording, folder, dumps
    path: Path
    files: tuple[Path, ...] = ()


def source_of(paths: Sequence[Path]) -> Source:
    """Tell what is to be analysed.

    Raises:
        DiagdError: A path is not there, or the paths are of several kinds.
    """
    for path in paths:
        if not path.exists():
            raise DiagdError(
                f"{path}: there is no such file or folder", help="name a folder of dumps, or the dumps", exit_code=USAGE
            )
        _refuse_report(path)
    special = [found for path in paths if (found := _special(path)) is not None]
    if special and len(paths) > 1:
        raise DiagdError(
            f"{special[0].path}: a {special[0].kind.replace('folder', 'dump folder')} is analysed alone",
            help="run diagd analyze for each of them",
            exit_code=USAGE,
        )
    if special:
        return special[0]
    files = []
    for path in paths:
        inside, folders = below(path) if path.is_dir() else ([path], [])
        if folders and len(paths) == 1:
            return Source("folder", only_one(path, inside, folders))
        files += inside
    if not files:
        raise DiagdError(
            f"{paths[0]}: holds no dump",
            help="name a folder of dumps, or the dumps; logs are for diagd scan",
            exit_code=USAGE,
        )
    return Source("dumps", paths[0], tuple(dict.fromkeys(files)))


def _refuse_report(path: Path) -> None:
    """A report without a dump has its verdicts already."""
    where = path if path.is_dir() else path.parent
    report = where / "report.json"
    if path not in (where, report) or not report.is_file() or (path == where and not _is_alone(report)):
        return
    raise DiagdError(
        f"{path}: is a report of diagd's, and no dump",
        help=f"its verdicts stand in {report} and in report.html beside it; a dump is made by `diagd dump`",
        exit_code=USAGE,
    )


def _is_alone(report: Path) -> bool:
    """Whether its folder holds nothing else that may be a dump."""
    return _special(report.parent) is None and below(report.parent) == ([report], [])


def _special(path: Path) -> Source | None:
    """A recording or a dump folder; None for what must be dumps."""
    if path.is_dir():
        below = path if folder.is_folder(path) else folder.newest_below(path)
        return Source("folder", below) if below is not None else None
    return Source("recording", path) if is_recording(path) else None


def is_recording(path: Path) -> bool:
    """Whether the file begins as a recording does."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


__all__ = ["NotADump", "Source", "is_recording", "source_of"]
