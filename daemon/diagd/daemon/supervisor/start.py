"""Starts the job as a shell would have: the same descriptors and signals, and nearly the same environment."""

import errno
import os
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

# Python ignores these for itself; the job gets them as a shell gives them.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
RECORDER_ENTRIES = "2000"  # torch's default since 2.8; before that the flight recorder was off


class CannotStart(Exception):
    """The command, or diagd itself, could not be started; `exit_code` as a shell has it, 85 where diagd is to blame."""

    def __init__(self, message: str, exit_code: int, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.help = help


def job_environment(environ: Mapping[str, str], job_id: str, run_dir: Path | None, bootstrap: Path) -> dict[str, str]:
    """The caller's environment and what the probes need; unchanged where there is no directory for them to write to."""
    env = dict(environ)
    if run_dir is None:
        return env
    path = environ.get("PYTHONPATH")
    env["DIAGD_DIR"] = str(run_dir)
    env["DIAGD_JOB_ID"] = job_id
    # No separator at the end: an empty entry would put the working directory on the path.
    env["PYTHONPATH"] = f"{bootstrap}{os.pathsep}{path}" if path else str(bootstrap)
    env.setdefault("TORCH_FR_BUFFER_SIZE", RECORDER_ENTRIES)
    if "TORCH_NCCL_DEBUG_INFO_TEMP_FILE" not in environ:  # the older name of the same setting
        env.setdefault("TORCH_FR_DUMP_TEMP_FILE", str(run_dir / "fr" / "trace_"))
    return env


def start_job(command: Sequence[str], env: Mapping[str, str], mask: Iterable[int]) -> int:
    """Start the command with diagd's own descriptors and process group; `mask` is what was blocked when diagd began.

    Returns:
        Its pid.

    Raises:
        CannotStart: With 127 where there is no such command, 126 where it cannot be executed.
    """
    program = _find(command[0], env)
    try:
        return _spawn(program, command, env, mask)
    except OSError as exc:
        if exc.errno == errno.ENOEXEC:  # a script without #!, which a shell runs itself
            return _spawn("/bin/sh", ["/bin/sh", program, *command[1:]], env, mask)
        raise _explained(command[0], program, exc) from exc


def _find(name: str, env: Mapping[str, str]) -> str:
    if "/" in name:
        return name
    path = env.get("PATH", os.defpath)
    if found := shutil.which(name, path=path):
        return found
    if any((Path(folder or ".") / name).is_file() for folder in path.split(os.pathsep)):
        raise CannotStart(f"{name}: found on PATH, but not executable", 126)
    raise CannotStart(f"{name}: command not found", 127, _hint(name))


def _hint(name: str) -> str:
    if name.endswith(".py"):
        return f"a script needs its interpreter: diagd run -- python {name}"
    if Path(name).is_file():
        return f"it is in this folder, which is not on PATH: diagd run -- ./{name}"
    return "the command is looked up on PATH, as a shell does: is the environment that holds it active?"


def _spawn(program: str, command: Sequence[str], env: Mapping[str, str], mask: Iterable[int]) -> int:
    # Not subprocess: it closes descriptors from 3 on, which a job may have been given on purpose.
    return os.posix_spawn(program, list(command), dict(env), setsigmask=list(mask), setsigdef=_IGNORED_BY_PYTHON)


def _explained(name: str, program: str, exc: OSError) -> CannotStart:
    if exc.errno in (errno.ENOENT, errno.ENOTDIR):
        if Path(program).exists():
            return CannotStart(f"{name}: its interpreter (the first line, after #!) does not exist", 127)
        return CannotStart(f"{name}: no such file", 127)
    if Path(program).is_dir():
        return CannotStart(f"{name}: is a directory", 126)
    if exc.errno in (errno.EACCES, errno.EPERM):
        help = f"make it so with: chmod +x {name}" if not os.access(program, os.X_OK) else ""
        return CannotStart(f"{name}: is not executable ({exc.strerror})", 126, help)
    if exc.errno in (errno.EAGAIN, errno.ENOMEM):
        return CannotStart(f"no process can be started: {exc.strerror}", 85, "see `ulimit -u` and the free memory")
    return CannotStart(f"{name}: cannot be executed: {exc.strerror}", 126)
