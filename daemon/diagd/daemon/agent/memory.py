"""What memory a rank, its data workers and its other children hold, and what is left for them, look after look."""

import os
from collections.abc import Sequence
from pathlib import Path

from diagd.daemon.agent.descriptors import descriptors
from diagd.daemon.agent.devices import Devices
from diagd.daemon.agent.procfs import Procfs, Stat
from diagd.daemon.agent.room import own_room, room
from diagd.daemon.agent.usage import DATA_WORKER, Meter

PREFIX = "memory/"
OFTEN_S = 0.45
SHM_S = 0.9  # it may fill within half a minute
FDS_S, MANY_FDS = 1.9, 2048  # more of them take a millisecond and more to list
SELDOM_S = 5.0
_SHARED_OUT_S = 30.0  # smaps_rollup walks all pages of a process
_SHARED_OUT_COST = 8000.0  # and takes no more than so small a part of the time: it is for the dashboards alone
_NAMED_BY = 10  # looks: a child that has no data worker's name by then is none
_WORKER = 1 << 30
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Each of the worker server's threads keeps what an answer of it took to build: measured with torch 2.13 and glibc.
_SERVER_THREADS = 8
_KEPT_OF_ANSWER = 12  # times its length


class MemoryMeter:
    """One rank's memory, as `Facts.extra` carries it; bytes where nothing else is said.

    At each look: `memory/rss`; `memory/answers`, what reading the flight recorder may have left behind in it;
    `memory/worker_rss` (anonymous, all living data workers together), `memory/workers` (their number, and once 0 when
    they are gone) and `memory/worker_first` (the least of their process numbers: another one, and they were started
    anew), where there are some; the same of all its other children as `memory/child_rss`, `memory/child_count` and
    `memory/child_first`; `memory/at_s`, the time of it.
    Each second: `memory/shm_used`, `memory/shm_free`, `memory/shm_inodes_free`; `memory/written` by its write calls,
    wherever to.
    Each other second: `memory/fds` and what else descriptors.py tells of open files.
    Seldom: `memory/available`, `memory/limit`, `memory/swap_used`, `memory/pressure_percent`, `memory/pushed` (times
    at a cgroup's limit), `memory/own_limit` and `memory/own_left` (of limits of the process, where it has some),
    `memory/children`, what NVML tells (devices.py), and, where the kernel tells cheaply, `memory/pss` and
    `memory/worker_pss`.
    """

    def __init__(
        self, pid: int, proc: Procfs, folders: Sequence[Path] = (), devices: Devices | None = None
    ) -> None:  # fmt: skip
        self._pid = pid
        self._proc = proc
        self._folders = tuple(folders)
        self._devices = devices
        self._often_s = self._shm_s = self._fds_s = self._seldom_s = self._shared_out_s = -1e9
        self._fds_every_s = FDS_S
        self._fds_most = 0.0
        self._shared_out_every_s = _SHARED_OUT_S
        self._had_workers = False
        self._answers: list[int] = []  # the longest of the flight recorder's, bytes
        self._seen: dict[int, int] = {}  # children: how often each was looked at without being a data worker

    def note_answer(self, length: int) -> None:
        """The rank's worker server has given an answer of so many bytes."""
        self._answers = sorted([*self._answers, length])[-_SERVER_THREADS:]

    def read(self, stat: Stat, meter: Meter, now_s: float) -> dict[str, float]:
        """What is due; nothing where it was read just now."""
        if now_s - self._often_s < OFTEN_S:
            return {}
        self._often_s = now_s
        workers = self._data_workers(meter)
        found = {"at_s": now_s, "rss": float(stat.rss_bytes), **self._of_workers(workers)}
        if self._answers:
            found["answers"] = float(_KEPT_OF_ANSWER * sum(self._answers))
        found |= self._of_others([pid for pid in meter.living_children() if pid not in workers])
        if now_s - self._shm_s >= SHM_S:
            self._shm_s = now_s
            found |= _shm(f"{self._proc.root}/{self._pid}/root/dev/shm")
            found |= {"written": float(self._proc.written_bytes(self._pid))}
        if now_s - self._fds_s >= self._fds_every_s:
            self._fds_s = now_s
            found |= self._descriptors()
        if now_s - self._seldom_s >= SELDOM_S:
            self._seldom_s = now_s
            found |= self._room()
            found |= {"children": float(len(meter.living_children()))}
        if now_s - self._shared_out_s >= self._shared_out_every_s:
            self._shared_out_s = now_s
            found |= self._shared_out(workers)
        of_devices = self._devices.of(self._pid) if self._devices is not None else {}
        return {f"{PREFIX}{name}": value for name, value in found.items()} | of_devices

    def _data_workers(self, meter: Meter) -> list[int]:
        """The data workers among its children, by the name that torch gives them once they run."""
        listed_now = self._proc.read(f"{self._pid}/task/{self._pid}/children").split()
        known = {pid for pid in meter.living_children() if meter.children[pid].stat.parent == self._pid}
        children = sorted(known.union(int(pid) for pid in listed_now if pid.isdigit()))
        for pid in children:
            times = self._seen.get(pid, 0)
            if times < _NAMED_BY:
                named = self._proc.text(f"{pid}/comm").startswith(DATA_WORKER)
                self._seen[pid] = _WORKER if named else times + 1
        self._seen = {pid: times for pid, times in self._seen.items() if pid in children}
        return [pid for pid in children if self._seen[pid] == _WORKER]

    def _of_workers(self, workers: list[int]) -> dict[str, float]:
        sizes = [size for pid in workers if (size := anonymous_bytes(self._proc, pid)) is not None]
        if not sizes:
            had, self._had_workers = self._had_workers, False
            return {"workers": 0.0} if had else {}
        self._had_workers = True
        return {"worker_rss": float(sum(sizes)), "workers": float(len(sizes)), "worker_first": float(min(workers))}

    def _of_others(self, children: list[int]) -> dict[str, float]:
        sizes = {pid: size for pid in children if (size := anonymous_bytes(self._proc, pid)) is not None}
        if not sizes:
            return {}
        return {
            "child_rss": float(sum(sizes.values())), "child_count": float(len(sizes)), "child_first": float(min(sizes))
        }  # fmt: skip

    def _room(self) -> dict[str, float]:
        own = own_room(self._proc, self._pid)
        found = room(self._proc, self._folders)._asdict() | (own._asdict() if own is not None else {})
        return {name: float(value) for name, value in found.items()}

    def _descriptors(self) -> dict[str, float]:
        found = descriptors(self._proc, self._pid, self._fds_most)
        self._fds_most = max(self._fds_most, found.get("fds", 0.0))
        self._fds_every_s = FDS_S if found.get("fds", 0.0) <= MANY_FDS else SELDOM_S
        return found

    def _shared_out(self, workers: list[int]) -> dict[str, float]:
        """What each process would leave behind, its part of shared pages: only so forked copies add up."""
        began = os.times()
        found = {"pss": _pss(self._proc, self._pid)}
        if workers:
            found["worker_pss"] = sum(_pss(self._proc, pid) for pid in workers)
        ended = os.times()
        took_s = ended.user - began.user + ended.system - began.system
        self._shared_out_every_s = max(_SHARED_OUT_S, _SHARED_OUT_COST * took_s)
        return {name: value for name, value in found.items() if value}


def anonymous_bytes(proc: Procfs, pid: int) -> int | None:
    """A process's resident memory without files and shared memory, whose pages others hold or the kernel can drop."""
    fields = proc.read(f"{pid}/statm").split()
    if len(fields) < 3 or not (fields[1].isdigit() and fields[2].isdigit()):
        return None
    return max(int(fields[1]) - int(fields[2]), 0) * _PAGE


def _pss(proc: Procfs, pid: int) -> float:
    for line in proc.read(f"{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            value = line.split()[1]
            return float(value) * 1024 if value.isdigit() else 0.0
    return 0.0


def _shm(folder: str) -> dict[str, float]:
    """The shared memory that the process sees, which in a container is its own."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return {}
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    shm = {"shm_used": float(used), "shm_free": float(found.f_bavail * found.f_frsize)}
    return {**shm, "shm_inodes_free": float(found.f_favail)} if found.f_files else shm
