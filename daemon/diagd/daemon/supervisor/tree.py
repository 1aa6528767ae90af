"""A job's processes, wherever they went: torchrun's workers lead sessions of their own, orphans lose their parent."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_MARK = b"DIAGD_DIR="


def processes_of(run_dir: Path, root_pid: int = 0, proc: Path = Path("/proc")) -> list[int]:
    """The live processes that work in `run_dir` or descend from `root_pid`; never diagd itself or what started it.

    The directory is the mark, not the job's id: a person may have exported that in the shell that started diagd.
    """
    spared = set(_ancestors(os.getpid(), proc))
    marked = {pid for pid, directory in _marks(proc) if directory == os.fsencode(run_dir)}
    if root_pid:
        marked |= _descendants(root_pid, proc)
    return sorted(marked - spared)


def below(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """The live processes that descend from this one, as a rank's data workers."""
    return sorted(_descendants(pid, proc) - {pid})


def live_directories(proc: Path = Path("/proc")) -> set[str]:
    """The run directories in which some process works."""
    return {os.fsdecode(directory) for _, directory in _marks(proc)}


def states_of(pids: Iterable[int], proc: Path = Path("/proc")) -> dict[int, str]:
    """The state letter of each of these processes that lives."""
    return {pid: found[0] for pid in pids if (found := _stat(pid, proc)) and found[0] not in "ZX"}


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each of them that still lives."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def _pids(proc: Path) -> Iterator[int]:
    for entry in os.scandir(proc):
        if entry.name.isdigit():
            yield int(entry.name)


def _marks(proc: Path) -> Iterator[tuple[int, bytes]]:
    for pid in _pids(proc):
        with suppress(OSError):  # it ended, or is another user's
            for entry in (proc / str(pid) / "environ").read_bytes().split(b"\0"):
                if entry.startswith(_MARK):
                    yield pid, entry[len(_MARK) :]


def _stat(pid: int, proc: Path) -> tuple[str, int] | None:
    """State and parent; None where the process is gone."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold blanks and brackets
        return fields[0], int(fields[1])
    except (OSError, ValueError, IndexError):
        return None


def _ancestors(pid: int, proc: Path) -> Iterator[int]:
    while pid > 0:
        yield pid
        found = _stat(pid, proc)
        pid = found[1] if found else 0


def _descendants(root: int, proc: Path) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid in _pids(proc):
        if found := _stat(pid, proc):
            children.setdefault(found[1], []).append(pid)
    seen, left = {root}, [root]
    while left:
        fresh = [pid for pid in children.get(left.pop(), []) if pid not in seen]
        seen.update(fresh)
        left += fresh
    return {pid for pid in seen if (found := _stat(pid, proc)) and found[0] not in "ZX"}
