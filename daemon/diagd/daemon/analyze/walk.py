"""What lies below a folder that may hold dumps: files that may be one, and diagd's own dump folders."""

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from diagd.daemon.analyze import folder
from diagd.daemon.analyze.dumpfile import rank_in
from diagd.daemon.analyze.plain import NotADump
from diagd.daemon.errors import DiagdError

USAGE = 2  # the exit code for what is no dump
_NOTES = frozenset({".txt", ".log", ".html", ".md"})  # lie beside dumps and are none
_PASSED_OVER = frozenset({"__pycache__", "site-packages", "node_modules"})
_VENV = "pyvenv.cfg"
_SHOWN = 10


def below(path: Path) -> tuple[list[Path], list[Path]]:
    """The files that may be dumps, and the dump folders; environments and hidden folders are passed over."""
    files: list[Path] = []
    folders: list[Path] = []
    for place, inside, names in os.walk(path):
        here = Path(place)
        if here != path and (_VENV in names or folder.is_folder(here)):
            folders += [here] * (_VENV not in names)
            inside.clear()
            continue
        inside[:] = sorted(name for name in inside if not name.startswith(".") and name not in _PASSED_OVER)
        files += [here / name for name in sorted(names) if not name.startswith(".") and not _is_note(name)]
    return [file for file in files if file.is_file()], folders


def _is_note(name: str) -> bool:
    return Path(name).suffix.lower() in _NOTES


def only_one(path: Path, files: Iterable[Path], folders: Sequence[Path]) -> Path:
    """The dump folder below `path`, which holds nothing else that is likely to be a dump.

    Raises:
        DiagdError: There are several, and each is a look of its own.
    """
    loose = [file for file in files if file.parent == path and _names_rank(file)]
    if len(folders) == 1 and not loose:
        return folders[0]
    newest = sorted(folders, key=lambda one: -(one / folder.SUMMARY).stat().st_mtime)
    lines = [f"diagd analyze {one}    {_when(one / folder.SUMMARY)}" for one in newest[:_SHOWN]]
    if len(newest) > _SHOWN:
        lines.append(f"… and {len(newest) - _SHOWN} older ones")
    beside = " beside other files" if loose else ""
    count = f"{len(folders)} dump folders" if len(folders) > 1 else "a dump folder"
    raise DiagdError(f"{path}: holds {count}{beside}, each analysed alone", help="\n".join(lines), exit_code=USAGE)


def _names_rank(file: Path) -> bool:
    try:
        return rank_in(file.name) >= 0
    except NotADump:
        return False


def _when(file: Path) -> str:
    return time.strftime("%F %T", time.localtime(file.stat().st_mtime))


def told(problems: dict[Path, str], holding: Iterable[Path]) -> list[str]:
    """Why files are no dumps: each file that lies with dumps, of folders that hold none only how many there are."""
    folders = set(holding)
    near = [f"{path} {why}" for path, why in problems.items() if path.parent in folders]
    far = {path: why for path, why in problems.items() if path.parent not in folders}
    if len(far) > 1:
        first, why = next(iter(far.items()))
        return [*near, f"{len(far)} files in folders without a dump are none, such as {first}, which {why}"]
    return [*near, *(f"{path} {why}" for path, why in far.items())]
