"""Why a process gives no stack: whose it is, or that it runs no Python; else what the reader of stacks said."""

import os
import pwd
from pathlib import Path

from diagd.daemon.agent import pyspy
from diagd.daemon.agent.procfs import Procfs


def looks_like_python(proc: Procfs, pid: int) -> bool:
    """Whether its program is called so, or has Python in it."""
    command = proc.command(pid)
    named = any(Path(program).name.startswith("python") for program in (proc.program(pid), *command[:1]))
    return named or b"libpython" in proc.read(f"{pid}/maps")


def why_not(proc: Procfs, pid: int, said: str = pyspy.NO_PERMISSION, uid: int | None = None) -> str:
    """The nearest reason why nothing was read; `said` where it is none of those that show from outside."""
    mine = os.geteuid() if uid is None else uid
    owner = _number(proc.status(pid).get("Uid", ""))
    if mine != 0 and owner not in (None, mine):
        return f"it belongs to {_name(owner)}, and you are {_name(mine)}: look as that user, or as root"
    if proc.stat(pid) is None or looks_like_python(proc, pid):
        return said
    if not (command := proc.command(pid)):
        return "it is no Python process, but a thread of the kernel"
    sure = " as far as can be seen:" if said == pyspy.NO_PERMISSION else ""
    return f"it is no Python process,{sure} it runs {Path(command[0]).name}"


def _number(text: str) -> int | None:
    first = text.split()[:1]
    return int(first[0]) if first and first[0].isdecimal() else None


def _name(uid: int | None) -> str:
    try:
        return pwd.getpwuid(uid or 0).pw_name
    except KeyError:
        return f"user {uid}"
