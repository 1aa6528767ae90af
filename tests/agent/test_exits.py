"""How processes end that are somebody else's children."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.builders import process, until, write

from diagd.daemon.agent.cgroup import Cgroups, kills
from diagd.daemon.agent.exits import ExitWatch, LauncherWitness
from diagd.daemon.agent.procfs import Procfs, listed


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[ExitWatch]:
    proc = Procfs()
    found = ExitWatch(proc, Cgroups(proc, tmp_path))
    yield found
    found.close()


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.exit(len(sys.stdin.read()))"], stdin=subprocess.PIPE
    )


def test_an_exit_code_is_seen_while_the_process_is_a_zombie(watch: ExitWatch) -> None:
    child = sleeper()
    watch.watch(child.pid)
    assert child.stdin is not None
    child.stdin.write(b"abc")
    child.stdin.close()
    until(lambda: watch.exit_of(child.pid))
    found = watch.exit_of(child.pid)
    assert found is not None
    assert (found.code, found.signal, found.seen_by, found.oom_killed) == (3, "", "kernel", False)
    child.wait()


def test_a_signal_is_seen(watch: ExitWatch) -> None:
    child = sleeper()
    watch.watch(child.pid)
    child.send_signal(signal.SIGABRT)
    until(lambda: watch.exit_of(child.pid))
    assert str(watch.exit_of(child.pid)) == "SIGABRT"
    child.communicate()


def test_the_launchers_word_counts_where_nothing_else_is_known(watch: ExitWatch) -> None:
    watch.heard(4_000_000, 9, 5.0)
    found = watch.exit_of(4_000_000)
    assert found is not None
    assert (found.signal, found.at_s, found.seen_by) == ("SIGKILL", 5.0, "launcher")


def test_a_process_that_is_already_gone_is_simply_not_known(watch: ExitWatch) -> None:
    child = sleeper()
    child.kill()
    child.communicate()
    watch.watch(child.pid)
    assert watch.exit_of(child.pid) is None


def memory_cgroup(tmp_path: Path, version: int) -> tuple[Cgroups, Path]:
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    for pid in (70, 71, 72):
        process(proc, pid, cgroup="4:memory:/job/step\n0::/\n" if version == 1 else "0::/job/step\n")
    folder = root / ("memory/job/step" if version == 1 else "job/step")
    name = "memory.oom_control" if version == 1 else "memory.events"
    write(folder / name, "oom_kill 1\n" if version == 1 else "low 0\noom 1\noom_kill 1\n")
    write(folder / ("memory.limit_in_bytes" if version == 1 else "memory.max"), "4096\n")
    write(folder.parent / ("memory.limit_in_bytes" if version == 1 else "memory.max"), "9223372036854771712\n")
    return Cgroups(Procfs(proc), root), folder / name


@pytest.mark.parametrize("version", [1, 2])
def test_only_as_many_kills_are_put_down_to_memory_as_the_cgroup_counts(tmp_path: Path, version: int) -> None:
    cgroups, counter = memory_cgroup(tmp_path, version)
    watch = ExitWatch(Procfs(tmp_path / "proc"), cgroups)
    try:
        for pid in (70, 71, 72):
            watch.watch(pid)
        counter.write_text(counter.read_text().replace("oom_kill 1", "oom_kill 2"))
        watch.heard(70, 15, 1.0)
        watch.heard(71, 9, 2.0)
        watch.heard(72, 9, 3.0)
        assert [e.oom_killed for pid in (70, 71, 72) if (e := watch.exit_of(pid))] == [False, True, False]
    finally:
        watch.close()


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_memory_limit_counts(tmp_path: Path, version: int) -> None:
    cgroups, counter = memory_cgroup(tmp_path, version)
    assert cgroups.memory_limit_bytes(70) == 4096
    assert kills(counter) == 1


def test_no_cgroup_means_no_limit_and_no_count(tmp_path: Path) -> None:
    process(tmp_path / "proc", 70)
    cgroups = Cgroups(Procfs(tmp_path / "proc"), tmp_path / "none")
    assert cgroups.memory_limit_bytes(70) is None
    assert cgroups.kill_counter(70) is None
    assert kills(None) is None


def test_the_launchers_lines_are_each_read_once_and_only_when_whole(tmp_path: Path) -> None:
    witness, path = LauncherWitness(tmp_path), tmp_path / "9.exits"
    line = json.dumps({"pid": 70, "status": 9, "at_ns": 1_700_000_000_500_000_000})
    path.write_text(line + '\nnonsense\n{"pid": 71\n' + line[:10])
    assert witness.news(["9.exits", "10.exits"]) == [(70, 9, 1_700_000_000.5)]
    assert witness.news(["9.exits"]) == []
    with path.open("a") as file:
        file.write(line[10:] + "\n")
    assert witness.news(["9.exits"]) == [(70, 9, 1_700_000_000.5)]


def test_a_launchers_line_in_the_monotonic_clock_is_brought_to_unix_time(tmp_path: Path) -> None:
    (tmp_path / "9.exits").write_text(json.dumps({"pid": 70, "status": 256, "at_ns": time.monotonic_ns()}) + "\n")
    ((_, _, at_s),) = LauncherWitness(tmp_path).news(["9.exits"])
    assert at_s == pytest.approx(time.time(), abs=60)


@pytest.mark.parametrize(("status", "text"), [(0, "0"), (256, "1"), (6, "SIGABRT"), (134, "SIGABRT"), (-11, "SIGSEGV")])
def test_a_wait_status_is_read_as_the_kernel_means_it(watch: ExitWatch, status: int, text: str) -> None:
    watch.heard(4_000_000, status, 5.0)
    assert str(watch.exit_of(4_000_000)) == text


def test_the_watch_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(listed("/proc/self/fd"))
    watch = ExitWatch(Procfs(), Cgroups(Procfs(), tmp_path))
    watch.watch(os.getpid())
    watch.close()
    assert len(listed("/proc/self/fd")) == before
