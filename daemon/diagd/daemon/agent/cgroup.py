"""A process's memory cgroup, version 1 or 2: its limit, and how many processes the kernel killed in it for memory."""

from collections.abc import Iterator
from pathlib import Path

from diagd.daemon.agent.procfs import Procfs, text_of

_THROTTLED = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
_NO_LIMIT = 1 << 60  # version 1 says "no limit" with a huge number


class Cgroups:
    """The cgroup file system, or a tree that looks like one."""

    def __init__(self, proc: Procfs, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._root = root

    def kill_counter(self, pid: int) -> Path | None:
        """The file that counts the kills for memory in the process's cgroup; None where there is none."""
        for folder in self._folders(pid):
            for name in ("memory.events", "memory.oom_control"):
                if (folder / name).is_file():
                    return folder / name
        vmstat = self._proc.root / "vmstat"  # the root cgroup counts nothing itself, but the machine does
        return vmstat if vmstat.is_file() else None

    def memory_limit_bytes(self, pid: int) -> int | None:
        """The tightest limit on the way from the process's cgroup to the root."""
        limits = []
        for folder in self._folders(pid):
            for name in ("memory.max", "memory.limit_in_bytes"):
                text = text_of(folder / name).strip()
                if text.isdecimal() and int(text) < _NO_LIMIT:
                    limits.append(int(text))
        return min(limits, default=None)

    def memory_folders(self, pid: int) -> tuple[Path, ...]:
        """Its memory cgroup and those above it, innermost first."""
        return tuple(dict.fromkeys(self._folders(pid)))

    def cpu_stat(self, pid: int) -> Path | None:
        """The file that counts how long the process's cgroup was kept from its CPUs; None where there is none."""
        return next((f for folder in self._folders(pid, "cpu") if (f := folder / "cpu.stat").is_file()), None)

    def _folders(self, pid: int, controller: str = "memory") -> Iterator[Path]:
        """The cgroup and those above it; in a container the path may lead outside of what is mounted here."""
        for line in self._proc.text(f"{pid}/cgroup").splitlines():
            number, controllers, path = [*line.split(":", 2), "", ""][:3]
            if controller in controllers.split(","):
                roots = [self._root / controller, self._root / controllers]
            elif number == "0" and not controllers:
                roots = [self._root, self._root / "unified"]
            else:
                continue
            for root in roots:
                here = root / path.lstrip("/")
                yield from (folder for folder in (here, *here.parents) if folder.is_relative_to(root))


def kills(counter: Path | None) -> int | None:
    """The count in a file that `kill_counter` gave."""
    if counter is None:
        return None
    for line in text_of(counter).splitlines():
        key, _, value = line.partition(" ")
        if key == "oom_kill" and value.isdecimal():
            return int(value)
    return None


def throttled_s(cpu_stat: Path | None) -> float:
    """Seconds of throttling in a file that `cpu_stat` gave: version 2 counts microseconds, version 1 nanoseconds."""
    if cpu_stat is None:
        return 0.0
    for line in text_of(cpu_stat).splitlines():
        key, _, value = line.partition(" ")
        if key in _THROTTLED and value.strip().isdecimal():
            return int(value) * _THROTTLED[key]
    return 0.0
