"""Who holds the file lock that a process waits for, as the kernel lists them (proc_locks(5))."""

from diagd.daemon.agent.procfs import Procfs

CALLS = frozenset({"flock", "fcntl"})
HELD = "held by process "


def holder(proc: Procfs, pid: int) -> int:
    """The process that has what this one waits for; 0 where it waits for none, or that is not told."""
    rows = [line.split() for line in proc.text("locks").splitlines()]
    # "3: -> FLOCK ADVISORY WRITE 4242 fd:01:77 0 EOF" waits for the lock that is listed as 3.
    waiting = {row[0] for row in rows if len(row) > 6 and row[1] == "->" and row[5] == str(pid)}
    held = (row[4] for row in rows if len(row) > 5 and row[0] in waiting and row[1] != "->")
    return next((int(owner) for owner in held if owner.isdecimal() and owner != str(pid)), 0)
