"""How many files a process holds open, of which kind, and how many it may (RLIMIT_NOFILE)."""

from pathlib import Path

from diagd.daemon.agent.procfs import Procfs, listed

_LIMIT = "Max open files"
_MOST = 128  # descriptors whose kind is looked up: each is a system call
_KINDS = {"socket:": "fd_sockets", "pipe:": "fd_pipes", "/": "fd_files"}


def descriptors(proc: Procfs, pid: int, most: float = 0.0) -> dict[str, float]:
    """`fds`; of the newest of them how many are `fd_files`, `fd_sockets` and `fd_pipes`; `fd_limit` where there is one.

    The newest are those of the highest numbers, as the kernel gives the lowest that is free.

    Args:
        most: So many there were before: of no more, only the number is read, since each kind costs a system call.
    """
    folder = Path(proc.root, str(pid), "fd")
    numbers = sorted((int(name) for name in listed(str(folder)) if name.isdecimal()), reverse=True)
    if not numbers:
        return {}
    if len(numbers) <= most:
        return {"fds": float(len(numbers))}
    found = {"fds": float(len(numbers)), **dict.fromkeys(_KINDS.values(), 0.0)}
    for number in numbers[:_MOST]:
        kind = _kind(folder / str(number))
        if kind is not None:
            found[kind] += 1.0
    limit = _limit(proc, pid)
    return {**found, "fd_limit": float(limit)} if limit else found


def _kind(path: Path) -> str | None:
    try:
        target = str(path.readlink())
    except OSError:
        return None  # closed meanwhile
    return next((name for begin, name in _KINDS.items() if target.startswith(begin)), None)


def _limit(proc: Procfs, pid: int) -> int:
    """The soft limit; 0 where there is none, or it is not known."""
    for line in proc.text(f"{pid}/limits").splitlines():
        words = line.removeprefix(_LIMIT).split() if line.startswith(_LIMIT) else []
        if words and words[0].isdecimal():
            return int(words[0])
    return 0
