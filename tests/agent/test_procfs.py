"""Reading /proc, from trees that look like it."""

from pathlib import Path

from tests.agent.builders import process, write

from diagd.daemon.agent import syscalls
from diagd.daemon.agent.procfs import Procfs, parse_stat


def test_a_name_with_brackets_and_blanks_does_not_shift_the_fields(tmp_path: Path) -> None:
    process(tmp_path, 7, name="a) R (b c", state="D", parent=3, ticks=(150, 50, 20, 10), start=99)
    stat = Procfs(tmp_path).stat(7)
    assert stat is not None
    assert (stat.name, stat.state, stat.parent, stat.cpu_s, stat.reaped_cpu_s, stat.start_ticks) == (
        "a) R (b c", "D", 3, 2.0, 0.3, 99,
    )  # fmt: skip


def test_a_process_that_is_gone_reads_as_nothing(tmp_path: Path) -> None:
    proc = Procfs(tmp_path)
    assert proc.stat(7) is None
    assert parse_stat(b"7 (half") is None
    assert (proc.threads(7), proc.command(7), proc.environment(7)) == ({}, [], {})
    assert (proc.io_bytes(7), proc.caught_signals(7), proc.tracer(7), proc.wchan(7)) == (0, 0, 0, "")
    assert proc.call(7).name == ""
    assert proc.thread_cpu_s(7, 7) is None
    assert proc.may_trace(7)  # no permission is lacking


def test_io_counts_what_went_through_read_and_write(tmp_path: Path) -> None:
    process(tmp_path, 7, io=(1000, 24))
    assert Procfs(tmp_path).io_bytes(7) == 1024


def test_a_system_call_has_its_name_and_what_it_is_about(tmp_path: Path) -> None:
    number = next(n for n in range(500) if syscalls.name(n) == "read")
    process(tmp_path, 7, syscall=f"{number} 0x3 0x7f00 0x400 0x0 0x0 0x0 0x7ffc 0x7fab")
    (tmp_path / "7/fd").mkdir()
    (tmp_path / "7/fd/3").symlink_to("/data/shard-0003.tar")
    proc = Procfs(tmp_path)
    call = proc.call(7)
    assert (call.name, call.arguments[:3]) == ("read", (3, 0x7F00, 0x400))
    assert proc.waits_on(7, call) == "/data/shard-0003.tar"


def test_a_running_or_stopped_thread_is_in_no_call(tmp_path: Path) -> None:
    process(tmp_path, 7, syscall="running")
    process(tmp_path, 8, syscall="-1 0x7ffec2af4e60 0x7f9b81501080")
    assert Procfs(tmp_path).call(7).name == Procfs(tmp_path).call(8).name == ""


def test_the_tables_agree_on_the_calls_that_hangs_are_found_in() -> None:
    wanted = {
        "futex",
        "read",
        "openat",
        "epoll_pwait",
        "recvfrom",
        "nanosleep",
        "clock_nanosleep",
        "flock",
        "fcntl",
        "wait4",
    }
    for machine in ("x86_64", "aarch64"):
        assert wanted <= {syscalls.name(n, machine) for n in range(500)}
    assert syscalls.name(202, "x86_64") == syscalls.name(98, "aarch64") == "futex"
    assert syscalls.name(9999, "x86_64") == "9999"
    assert syscalls.name(202, "riscv64") == "202"


def test_descendants_are_found_through_the_parents_of_all_processes(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (11, 10), (12, 11), (13, 1)):
        process(tmp_path, pid, parent=parent)
    assert Procfs(tmp_path).descendants([10, 13]) == {10: [11, 12], 13: []}


def test_descendants_are_found_through_the_threads_that_started_them(tmp_path: Path) -> None:
    import os

    write(tmp_path / f"self/task/{os.getpid()}/children", "")
    write(tmp_path / "10/task/10/children", "11 ")
    write(tmp_path / "10/task/15/children", "12 ")
    write(tmp_path / "12/task/12/children", "13 ")
    assert Procfs(tmp_path).descendants([10]) == {10: [11, 12, 13]}


def test_this_very_process_reads_sensibly() -> None:
    import os

    proc, pid = Procfs(), os.getpid()
    stat = proc.stat(pid)
    assert stat is not None
    assert stat.rss_bytes > 1_000_000
    assert proc.threads(pid)[pid]
    assert proc.thread_cpu_s(pid, pid)
    assert proc.command(pid)[0]
    assert proc.environment(pid)
