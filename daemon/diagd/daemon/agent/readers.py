"""Programs that stop a process to read its stack and let it go; meanwhile it looks stopped and takes no other."""

import time

from diagd.daemon.agent.procfs import Procfs, Stat

STACK_READERS = ("py-spy", "pystack", "strace")  # they look and let go
LOOK_S = 3.0  # what such a look takes at most: native frames of a large process
_STEP_S = 0.02


def foreign_tracer(proc: Procfs, pid: int) -> int:
    """The process that traces it, unless that only reads stacks; 0 for none."""
    tracer = proc.tracer(pid)
    stat = proc.stat(tracer) if tracer else None
    return tracer if stat is not None and stat.name not in STACK_READERS else 0


def is_read(proc: Procfs, pid: int) -> bool:
    """Whether a stack reader holds the process now."""
    tracer = proc.tracer(pid)
    stat = proc.stat(tracer) if tracer else None
    return stat is not None and stat.name in STACK_READERS


def wait_for(proc: Procfs, pid: int, limit_s: float = LOOK_S) -> None:
    """Wait until no stack reader holds the process."""
    deadline = time.monotonic() + limit_s
    while is_read(proc, pid) and time.monotonic() < deadline:
        time.sleep(_STEP_S)


def undisturbed_stat(proc: Procfs, pid: int, limit_s: float = LOOK_S) -> Stat | None:
    """The process as it is when no stack reader holds it: one may come or go between two looks at it."""
    deadline = time.monotonic() + limit_s
    while True:
        wait_for(proc, pid, max(deadline - time.monotonic(), 0.0))
        stat = proc.stat(pid)
        traced = stat is not None and stat.state == "t" and not foreign_tracer(proc, pid)
        caught = stat is not None and stat.state == "T" and is_read(proc, pid)
        if not (traced or caught) or time.monotonic() >= deadline:
            return stat
        time.sleep(_STEP_S)
