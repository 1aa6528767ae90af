"""What counts as a process doing something."""

from pathlib import Path

from tests.agent.builders import process

from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.agent.usage import Meter, Usage, wait_status


def read(proc: Path, meter: Meter, now_s: float = 0.0) -> Usage:
    stat = Procfs(proc).stat(meter.pid)
    assert stat is not None
    return meter.read(stat, now_s)


def test_main_and_other_threads_are_told_apart_and_diagds_own_is_left_out(tmp_path: Path) -> None:
    threads = {7: ("python3", 1_000_000_000), 8: ("pt_autograd_0", 0), 9: ("diagd", 500_000_000)}
    process(tmp_path, 7, ticks=(200, 0, 0, 0), threads=threads)
    assert read(tmp_path, Meter(7, Procfs(tmp_path)))[:2] == (1.0, 0.5)


def test_diagds_growing_share_does_not_make_the_others_fall(tmp_path: Path) -> None:
    meter = Meter(7, Procfs(tmp_path))
    process(tmp_path, 7, ticks=(200, 0, 0, 0), threads={7: ("python3", 0), 9: ("diagd", 0)})
    before = read(tmp_path, meter)
    process(tmp_path, 7, ticks=(200, 0, 0, 0), threads={7: ("python3", 0), 9: ("diagd", 9_000_000)})
    assert read(tmp_path, meter) == before


def test_what_a_look_causes_is_not_the_ranks_progress(tmp_path: Path) -> None:
    proc, meter = Procfs(tmp_path), Meter(7, Procfs(tmp_path))
    process(tmp_path, 7, io=(100, 0), threads={7: ("python3", 0)})
    before, stat = read(tmp_path, meter), proc.stat(7)
    assert stat is not None
    raw = meter.raw(stat, 0.0)
    process(tmp_path, 7, ticks=(30, 0, 0, 0), io=(100, 900), threads={7: ("python3", 100_000_000)})
    after = proc.stat(7)
    assert after is not None
    meter.leave_out(after, raw, 0.0)
    assert read(tmp_path, meter) == before


def test_what_its_main_thread_writes_is_counted_and_what_a_look_makes_it_write_is_not(tmp_path: Path) -> None:
    meter = Meter(7, Procfs(tmp_path))
    process(tmp_path, 7, io=(0, 100))
    stat = meter.proc.stat(7)
    assert stat is not None
    assert read(tmp_path, meter).written_bytes == 100
    raw = meter.raw(stat, 0.0)
    process(tmp_path, 7, io=(0, 4100))
    meter.leave_out(stat, raw, 0.0)
    assert read(tmp_path, meter).written_bytes == 100
    process(tmp_path, 7, io=(0, 4160))
    assert read(tmp_path, meter).written_bytes == 160


def test_a_child_that_works_on_while_it_is_looked_at_shows_life(tmp_path: Path) -> None:
    proc, meter = Procfs(tmp_path), Meter(7, Procfs(tmp_path))
    process(tmp_path, 7)
    process(tmp_path, 8, parent=7, ticks=(200, 0, 0, 0))
    meter.refresh_children([8])
    before, stat = read(tmp_path, meter), proc.stat(7)
    assert stat is not None
    for ticks, moved in ((203, False), (300, True)):
        raw = meter.raw(stat, 0.0)
        process(tmp_path, 8, parent=7, ticks=(ticks, 0, 0, 0))
        meter.refresh_children([])
        meter.leave_out(stat, raw, 0.0)
        assert (read(tmp_path, meter).children_cpu_s > before.children_cpu_s) == moved


def test_children_count_while_they_live_and_after_they_were_waited_for(tmp_path: Path) -> None:
    meter = Meter(7, Procfs(tmp_path))
    process(tmp_path, 7, ticks=(0, 0, 100, 0), io=(0, 0))
    process(tmp_path, 8, parent=7, ticks=(200, 0, 0, 0), io=(50, 0), name="pt_data_worker")
    meter.refresh_children([8])
    usage = read(tmp_path, meter)
    assert (usage.children_cpu_s, usage.io_bytes) == (3.0, 50)
    assert [(c.pid, c.role, c.in_data_loader, c.state) for c in meter.child_list()] == [(8, "worker", True, "S")]


def test_a_child_that_was_killed_says_so(tmp_path: Path) -> None:
    meter = Meter(7, Procfs(tmp_path))
    process(tmp_path, 7)
    process(tmp_path, 8, parent=7, command=("python3", "-c", "work"))
    meter.refresh_children([8])
    process(tmp_path, 8, parent=7, state="Z", exit_code=9, command=())
    meter.refresh_children([8])
    (child,) = meter.child_list()
    assert (child.exit, child.command) == ("SIGKILL", "python3 -c work")


def test_a_wait_status_is_a_signal_or_a_code() -> None:
    assert (wait_status(9), wait_status(3 << 8), wait_status(0), wait_status(134)) == ("SIGKILL", "3", "0", "SIGABRT")
