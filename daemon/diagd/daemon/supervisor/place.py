"""A job's name, and the directory in which its ranks and diagd meet."""

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from diagd.daemon.supervisor.tree import live_directories

# A unix socket's path may have 107 bytes; this leaves 30 for the socket's own name.
MAX_NAME = 22
MAX_BASE = 52
# A container often has 64 MB of shared memory, which the job's data workers need more than the boxes do.
MIN_SHM_FREE_BYTES = 256 * 1024 * 1024

_LOCK = "lock"
_RUN_ID_OPTION = re.compile(r"--?rdzv[-_]id(?:=(.*))?$")


def job_id_of(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """The job's name: DIAGD_JOB_ID, else Slurm's job and step, else torchrun's run id, else one that is made up."""
    if given := environ.get("DIAGD_JOB_ID"):
        return given
    if slurm := environ.get("SLURM_JOB_ID"):
        step = environ.get("SLURM_STEP_ID")
        return f"{slurm}.{step}" if step else slurm
    for name in (_run_id_option(command), environ.get("PET_RDZV_ID"), environ.get("TORCHELASTIC_RUN_ID")):
        if name and name != "none":
            return name
    return f"{time.strftime('%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _run_id_option(command: Sequence[str]) -> str | None:
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if match := _RUN_ID_OPTION.match(word):
            return match[1] if match[1] is not None else following
    return None


@dataclass(slots=True)
class Place:
    """A job's run directory, held by a lock for as long as its supervisor lives."""

    path: Path
    lock_fd: int
    twin: Path | None = None  # of a job of the same name that runs here now

    def remove(self) -> None:
        """Remove the directory and let go of it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Let go of the directory, but leave it."""
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1


def find_place(job_id: str, environ: Mapping[str, str], shm: Path = Path("/dev/shm")) -> tuple[Place | None, str]:
    """Make the job's run directory, and remove what dead jobs have left.

    Returns:
        The place, or None and the reason in words.
    """
    reasons = []
    for parent in _parents(environ, shm):
        base = parent / f"diagd-{os.getuid()}"
        try:
            _make_private(base)
            with _locked(base):
                _remove_stale(base)
                return _claim(base, job_id), ""
        except OSError as exc:
            reasons.append(f"{base}: {exc.strerror or exc}")
    return None, "; ".join(reasons) or "there is no writable directory"


def _parents(environ: Mapping[str, str], shm: Path) -> Iterator[Path]:
    with suppress(OSError):
        space = os.statvfs(shm)
        if space.f_bavail * space.f_frsize >= MIN_SHM_FREE_BYTES:
            yield shm
    for name in (environ.get("TMPDIR"), "/tmp", "/var/tmp"):
        if name and len(name) <= MAX_BASE - len("/diagd-4294967295/"):
            yield Path(name)


def _make_private(base: Path) -> None:
    """Make the user's own folder; refuse one that another user has put there first."""
    with suppress(FileExistsError):
        base.mkdir(mode=0o700)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(None, "belongs to another user, or is no directory")
    if stat.S_IMODE(found.st_mode) != 0o700:
        base.chmod(0o700)


@contextmanager
def _locked(base: Path) -> Iterator[None]:
    """Keep other supervisors from taking a directory that was made but is not held yet for a dead one's."""
    fd = os.open(base / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _claim(base: Path, job_id: str) -> Place:
    name = _directory_name(job_id)
    twin = None
    for candidate in (name, *(f"{name[: MAX_NAME - 3]}-{number}" for number in range(2, 100))):
        path = base / candidate
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:  # a live job of the same name: two nodes of one job on one machine, say
            twin = twin or path
            continue
        fd = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return Place(path, fd, twin)
    raise FileExistsError(None, f"too many jobs are called {job_id}")


def _directory_name(job_id: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", job_id).lstrip(".") or "job"
    if name == job_id and len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 7]}-{hashlib.sha256(job_id.encode()).hexdigest()[:6]}"


def _remove_stale(base: Path) -> None:
    """Remove the directories that no supervisor holds and no process works in."""
    unheld = [path for path in base.iterdir() if path.is_dir() and not path.is_symlink() and not _held(path)]
    if not unheld:
        return
    live = live_directories()  # the ranks of a supervisor that was killed still write here
    for path in unheld:
        if str(path) not in live:
            shutil.rmtree(path, ignore_errors=True)


def _held(path: Path) -> bool:
    try:
        fd = os.open(path / _LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
