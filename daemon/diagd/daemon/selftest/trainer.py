"""Finds the Python that has torch; it need not be the one that runs diagd."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagd.daemon.errors import DiagdError

OLDEST = (3, 11)  # that the probes run in
_CANNOT = 4
_TIMEOUT_S = 30.0
_MOST_SAID = 120  # characters
# Without importing torch, which takes seconds.
_ASK = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
found = {"python": list(sys.version_info[:3]), "torch": None}
if find_spec("torch") is not None:
    try:
        found["torch"] = version("torch")
    except PackageNotFoundError:
        found["torch"] = "of unknown version"
print("\\n" + json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Trainer:
    """A Python with torch."""

    path: str
    python: str
    torch: str


def find_trainer(chosen: Path | None) -> Trainer:
    """The Python that was chosen, else the first with torch of those on PATH and diagd's own.

    Raises:
        DiagdError: It has no torch, or none of them has.
    """
    # Not resolved: a virtual environment's Python is a link, and known by where that lies.
    paths = [str(chosen.absolute())] if chosen is not None else _candidates()
    reasons = []
    for path in paths:
        found = _ask(path)
        if isinstance(found, Trainer):
            return found
        reasons.append(f"{path}: {found}")
    help = (
        "the self-test starts small jobs on the CPU and needs a Python with torch, in which diagd need not be\n"
        "installed; name the one that trains: diagd selftest --python PATH, or give it torch: pip install torch"
    )
    raise DiagdError("no Python with torch: " + "; ".join(reasons), help=help, exit_code=_CANNOT)


def _candidates() -> list[str]:
    beside = Path(sys.executable).with_name("python")
    found = [shutil.which("python"), shutil.which("python3"), str(beside) if beside.exists() else None, sys.executable]
    return list(dict.fromkeys(str(Path(path).absolute()) for path in found if path))


def _ask(path: str) -> Trainer | str:
    """What it is, or why it will not do."""
    try:
        done = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        said = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"did not answer within {_TIMEOUT_S:.0f} s"
    except OSError as exc:
        return exc.strerror or str(exc)
    except (ValueError, IndexError):
        return (done.stderr.strip().splitlines() or ["is no Python"])[-1][:_MOST_SAID]
    return _judged(path, said["python"], said["torch"])


def _judged(path: str, version: Sequence[int], torch: str | None) -> Trainer | str:
    python = ".".join(map(str, version))
    if torch is None:
        return "has no torch"
    if tuple(version[:2]) < OLDEST:
        return f"is Python {python}, and the probes need {'.'.join(map(str, OLDEST))}"
    return Trainer(path, python, torch)
