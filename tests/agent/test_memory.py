"""What memory a rank and its data workers hold, read from trees that look like /proc and the cgroups."""

import os
from pathlib import Path

import pytest
from tests.agent.builders import process, write

from diagd.daemon.agent.cgroup import Cgroups
from diagd.daemon.agent.memory import MemoryMeter, anonymous_bytes
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.agent.room import room
from diagd.daemon.agent.usage import Meter

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024
MEMINFO = "MemTotal:  65536 kB\nMemAvailable: 32768 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n"


def statm(proc: Path, pid: int, resident: int, shared: int) -> None:
    """Sizes in pages."""
    write(proc / f"{pid}/statm", f"9999 {resident} {shared} 1 0 500 0\n")


def rank(proc: Path, *children: int) -> None:
    """Process 7, with data workers."""
    process(proc, 7, rss_pages=100)
    statm(proc, 7, 100, 30)
    write(proc / "meminfo", MEMINFO)
    write(proc / "7/task/7/children", " ".join(map(str, children)))
    for pid in children:
        process(proc, pid, name="pt_data_worker", parent=7)
        write(proc / f"{pid}/comm", "pt_data_worker\n")
        statm(proc, pid, 50 + pid, 50)


def read(meter: MemoryMeter, proc: Path, now_s: float) -> dict[str, float]:
    stat = Procfs(proc).stat(7)
    assert stat is not None
    return meter.read(stat, Meter(7, Procfs(proc)), now_s)


def test_data_workers_are_told_together_without_what_they_share(tmp_path: Path) -> None:
    rank(tmp_path, 11, 12)
    process(tmp_path, 13, name="sh", parent=7)
    write(tmp_path / "13/comm", "sh\n")
    write(tmp_path / "7/task/7/children", "11 12 13")
    found = read(MemoryMeter(7, Procfs(tmp_path)), tmp_path, 100.0)
    assert found["memory/worker_rss"] == 23 * PAGE
    assert (found["memory/workers"], found["memory/worker_first"]) == (2.0, 11.0)
    assert (found["memory/rss"], found["memory/at_s"]) == (100.0 * PAGE, 100.0)


LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max data size             {data}            unlimited            bytes
Max address space         {space}            unlimited            bytes
"""


@pytest.mark.parametrize(
    ("data", "space", "told"),
    [
        ("unlimited", "unlimited", None),
        (str(900 * PAGE), "unlimited", (900 * PAGE, 400 * PAGE)),
        ("unlimited", str(10_000 * PAGE), (10_000 * PAGE, PAGE)),
        (str(900 * PAGE), str(10_000 * PAGE), (10_000 * PAGE, PAGE)),  # the nearer one
        (str(100 * PAGE), "unlimited", (100 * PAGE, 0)),
    ],
)
def test_limits_of_the_process_itself_are_told(
    tmp_path: Path, data: str, space: str, told: tuple[int, int] | None
) -> None:
    rank(tmp_path)
    write(tmp_path / "7/limits", LIMITS.format(data=data, space=space))
    found = read(MemoryMeter(7, Procfs(tmp_path)), tmp_path, 100.0)
    assert (found.get("memory/own_limit"), found.get("memory/own_left")) == (told or (None, None))


def test_other_children_are_told_by_themselves(tmp_path: Path) -> None:
    rank(tmp_path, 11)
    process(tmp_path, 13, name="writer", parent=7)
    write(tmp_path / "13/comm", "writer\n")
    statm(tmp_path, 13, 80, 20)
    write(tmp_path / "7/task/7/children", "11 13")
    stat, meter = Procfs(tmp_path).stat(7), Meter(7, Procfs(tmp_path))
    assert stat is not None
    meter.refresh_children([11, 13])
    found = MemoryMeter(7, Procfs(tmp_path)).read(stat, meter, 100.0)
    children = [found[f"memory/child_{what}"] for what in ("rss", "count", "first")]
    assert children == [60 * PAGE, 1, 13]
    assert found["memory/workers"] == 1


def test_a_child_is_a_data_worker_from_when_torch_names_it_so(tmp_path: Path) -> None:
    rank(tmp_path, 11)
    write(tmp_path / "11/comm", "python3\n")
    meter = MemoryMeter(7, Procfs(tmp_path))
    assert "memory/workers" not in read(meter, tmp_path, 100.0)
    write(tmp_path / "11/comm", "pt_data_worker\n")
    assert read(meter, tmp_path, 101.0)["memory/workers"] == 1.0


def test_that_the_workers_are_gone_is_told_once(tmp_path: Path) -> None:
    rank(tmp_path, 11)
    meter = MemoryMeter(7, Procfs(tmp_path))
    assert read(meter, tmp_path, 100.0)["memory/workers"] == 1.0
    write(tmp_path / "7/task/7/children", "")
    assert read(meter, tmp_path, 101.0)["memory/workers"] == 0.0
    assert "memory/workers" not in read(meter, tmp_path, 102.0)


def test_what_changes_slowly_is_told_seldom_and_nothing_twice_at_once(tmp_path: Path) -> None:
    rank(tmp_path)
    meter = MemoryMeter(7, Procfs(tmp_path))
    first = read(meter, tmp_path, 100.0)
    assert first["memory/available"] == 32 * MIB
    assert first["memory/limit"] == 64 * MIB
    assert first["memory/swap_used"] == MIB
    assert read(meter, tmp_path, 100.2) == {}
    assert "memory/available" not in read(meter, tmp_path, 101.0)
    assert "memory/available" in read(meter, tmp_path, 106.0)


def test_shares_of_shared_pages_are_told_where_the_kernel_has_them(tmp_path: Path) -> None:
    rank(tmp_path, 11)
    for pid, kib in ((7, 400), (11, 100)):
        write(
            tmp_path / f"{pid}/smaps_rollup",
            f"0-1 ---p 0 0:0 0 [rollup]\nRss: 900 kB\nPss: {kib} kB\nPss_Dirty: 1 kB\n",
        )
    meter = MemoryMeter(7, Procfs(tmp_path))
    found = read(meter, tmp_path, 100.0)
    assert (found["memory/pss"], found["memory/worker_pss"]) == (400 * 1024, 100 * 1024)
    assert "memory/pss" not in read(meter, tmp_path, 110.0)


def test_a_process_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    assert anonymous_bytes(Procfs(tmp_path), 7) is None


@pytest.mark.parametrize("version", [1, 2])
def test_the_cgroup_counts_where_it_is_tighter_without_the_cache_that_would_go_first(
    tmp_path: Path, version: int
) -> None:
    proc, root = tmp_path / "proc", tmp_path / "cg"
    write(proc / "meminfo", "MemTotal: 6553600 kB\nMemAvailable: 6000000 kB\n")
    if version == 2:
        process(proc, 7, cgroup="0::/job\n")
        folder = root / "job"
        write(folder / "memory.max", str(100 * MIB))
        write(folder / "memory.current", str(90 * MIB))
        write(folder / "memory.stat", f"anon 1\ninactive_file {30 * MIB}\n")
        write(folder / "memory.events", "low 0\nhigh 2\nmax 3\noom 0\n")
        write(folder / "memory.pressure", "some avg10=12.50 avg60=1.00 avg300=0.00 total=5\nfull avg10=1.00\n")
    else:
        process(proc, 7, cgroup="4:memory:/job\n")
        folder = root / "memory/job"
        write(folder / "memory.limit_in_bytes", str(100 * MIB))
        write(folder / "memory.usage_in_bytes", str(90 * MIB))
        write(folder / "memory.stat", f"cache 1\ntotal_inactive_file {30 * MIB}\n")
        write(folder / "memory.failcnt", "5\n")
        write(root / "memory/memory.limit_in_bytes", str(1 << 62))
        write(root / "memory/memory.usage_in_bytes", str(500 * MIB))
        write(proc / "pressure/memory", "some avg10=12.50 avg60=1.00 avg300=0.00 total=5\n")
    found = room(Procfs(proc), Cgroups(Procfs(proc), root).memory_folders(7))
    assert (found.limit, found.available) == (100 * MIB, 40 * MIB)
    assert (found.pushed, found.pressure_percent) == (5, 12.5)


def test_without_a_limit_the_machine_is_the_limit(tmp_path: Path) -> None:
    proc, root = tmp_path / "proc", tmp_path / "cg"
    process(proc, 7, cgroup="0::/job\n")
    write(proc / "meminfo", MEMINFO)
    write(root / "job/memory.max", "max\n")
    write(root / "job/memory.current", str(90 * MIB))
    found = room(Procfs(proc), Cgroups(Procfs(proc), root).memory_folders(7))
    assert (found.limit, found.available, found.swap_used, found.pressure_percent) == (64 * MIB, 32 * MIB, MIB, 0.0)


def test_what_answers_of_the_flight_recorder_leave_behind_is_bounded_by_the_servers_threads(tmp_path: Path) -> None:
    rank(tmp_path)
    meter = MemoryMeter(7, Procfs(tmp_path))
    assert "memory/answers" not in read(meter, tmp_path, 100.0)
    for length in range(1, 11):
        meter.note_answer(length)
    assert read(meter, tmp_path, 200.0)["memory/answers"] == 12 * sum(range(3, 11))


def test_open_files_are_counted_by_their_kind_beside_the_limit(tmp_path: Path) -> None:
    rank(tmp_path)
    write(tmp_path / "7/limits", "Max processes             99                   99                   processes\n"
          "Max open files            1024                 4096                 files\n")  # fmt: skip
    (tmp_path / "7/fd").mkdir()
    targets = "/dev/null", "/job/a.txt", "/job/a.txt", "socket:[4]", "pipe:[5]", "anon_inode:x"
    for number, target in enumerate(targets):
        (tmp_path / f"7/fd/{number}").symlink_to(target)
    meter = MemoryMeter(7, Procfs(tmp_path))
    kinds = {"fd_limit": 1024.0, "fd_files": 3.0, "fd_sockets": 1.0, "fd_pipes": 1.0}
    assert fds(read(meter, tmp_path, 100.0)) == {"fds": 6.0, **kinds}
    assert fds(read(meter, tmp_path, 200.0)) == {"fds": 6.0}  # of no more than before the kinds are not looked up
    (tmp_path / "7/fd/6").symlink_to("pipe:[6]")
    assert fds(read(meter, tmp_path, 300.0)) == {"fds": 7.0, **kinds, "fd_pipes": 2.0}


def fds(found: dict[str, float]) -> dict[str, float]:
    return {name.removeprefix("memory/"): value for name, value in found.items() if name.startswith("memory/fd")}


def test_open_files_that_may_not_be_listed_are_not_known_rather_than_none(tmp_path: Path) -> None:
    rank(tmp_path)
    assert "memory/fds" not in read(MemoryMeter(7, Procfs(tmp_path)), tmp_path, 100.0)
