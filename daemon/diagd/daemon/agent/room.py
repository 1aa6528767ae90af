"""How much memory a process can still have: by its cgroup (version 1 or 2) and by the machine, the tighter of both; and
by limits of its own (ulimit -v and -d), which it shares with no other process.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from diagd.daemon.agent.procfs import Procfs, text_of

_KIB = 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SIZE, _DATA = 0, 5  # of statm: all of its address space, and what of it is private and writable
_LIMITS = {"Max address space": _SIZE, "Max data size": _DATA}
_NO_LIMIT = 1 << 60  # version 1 says "no limit" with a huge number
_USED = ("memory.current", "memory.usage_in_bytes")
_LIMIT = ("memory.max", "memory.limit_in_bytes")
_RECLAIMABLE = ("inactive_file", "total_inactive_file")  # page cache that goes before anybody is killed


class Room(NamedTuple):
    """Bytes, but for the last two."""

    limit: int  # of the cgroup, or what the machine has
    available: int  # until the kernel kills for memory
    swap_used: int
    pressure_percent: float  # of the last 10 s in which some process waited for memory; 0 where the kernel does not say
    pushed: int  # times that the cgroup was held at a limit of its own (memory.events high and max, or failcnt)


def room(proc: Procfs, folders: Sequence[Path]) -> Room:
    """The room of a process whose memory cgroup and those above it are `folders`."""
    machine = _fields(proc.text("meminfo"))
    limit, available = _kib(machine, "MemTotal"), _kib(machine, "MemAvailable")
    for folder in folders:
        own_limit, used = _number(folder, _LIMIT), _number(folder, _USED)
        if own_limit is None or used is None or own_limit >= _NO_LIMIT:
            continue
        left = max(own_limit - used + _reclaimable(folder), 0)
        if own_limit < limit or not limit:
            limit = own_limit
        available = min(available, left) if available else left
    swap = max(_kib(machine, "SwapTotal") - _kib(machine, "SwapFree"), 0)
    return Room(limit, available, swap, _pressure(proc, folders), sum(_pushed(folder) for folder in folders[:1]))


class OwnRoom(NamedTuple):
    """Of a process, bytes: what it may have at most, of all or of private writable memory, and what is left of that."""

    own_limit: int
    own_left: int


def own_room(proc: Procfs, pid: int) -> OwnRoom | None:
    """By the limit that it is nearest to; None where it has none."""
    pages = proc.read(f"{pid}/statm").split()
    found = []
    for line in proc.text(f"{pid}/limits").splitlines():
        name = next((name for name in _LIMITS if line.startswith(name)), None)
        words = line[len(name) :].split() if name is not None else []
        if name is not None and words and words[0].isdecimal() and len(pages) > _DATA:
            limit, used = int(words[0]), int(pages[_LIMITS[name]]) * _PAGE
            found.append(OwnRoom(limit, max(limit - used, 0)))
    return min(found, key=lambda room: room.own_left, default=None)


def _reclaimable(folder: Path) -> int:
    stat = _fields(text_of(folder / "memory.stat"))
    return max((int(stat[name]) for name in _RECLAIMABLE if stat.get(name, "").isdecimal()), default=0)


def _pressure(proc: Procfs, folders: Sequence[Path]) -> float:
    own = text_of(folders[0] / "memory.pressure") if folders else ""
    for line in (own or proc.text("pressure/memory")).splitlines():
        words = dict(word.partition("=")[::2] for word in line.split()[1:])
        if line.startswith("some") and words.get("avg10", "").replace(".", "", 1).isdecimal():
            return float(words["avg10"])
    return 0.0


def _pushed(folder: Path) -> int:
    events = _fields(text_of(folder / "memory.events"))
    if events:
        return sum(int(events[name]) for name in ("high", "max") if events.get(name, "").isdecimal())
    return _number(folder, ("memory.failcnt",)) or 0


def _number(folder: Path, names: Sequence[str]) -> int | None:
    for name in names:
        text = text_of(folder / name).strip()
        if text.isdecimal():
            return int(text)
    return None


def _fields(text: str) -> dict[str, str]:
    """ "name value" or "name: value kB" by name."""
    lines = (line.replace(":", " ").split() for line in text.splitlines())
    return {words[0]: words[1] for words in lines if len(words) > 1}


def _kib(fields: dict[str, str], name: str) -> int:
    return int(fields[name]) * _KIB if fields.get(name, "").isdecimal() else 0
