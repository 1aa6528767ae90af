"""Where a rank's time goes, from its box and from a /proc and cgroups that look like real ones."""

import time
from pathlib import Path

import pytest

from diagd.daemon.agent.cgroup import Cgroups, throttled_s
from diagd.daemon.agent.pace import PaceMeter
from diagd.daemon.agent.procfs import Procfs, Stat
from diagd.probes.box.layout import Live, Phase
from diagd.probes.box.reader import BoxReader
from diagd.probes.box.writer import BoxWriter

STAT = Stat("python", "R", 1, 1.0, 0.0, 5, 4096, 0, major_faults=7)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def box(tmp_path: Path) -> BoxWriter:
    box = BoxWriter(tmp_path / "rank.box")
    box.live[Live.STEP] = 3
    box.live[Live.PHASE] = Phase.FORWARD
    box.live[Live.PHASE_NS] = time.monotonic_ns() - 2_000_000_000
    box.live[Live.PHASE_TOTALS + Phase.FORWARD] = 5_000_000_000
    box.live[Live.PHASE_TOTALS + Phase.DATA] = 1_500_000_000
    box.live[Live.GARBAGE_NS] = 250_000_000
    return box


def test_the_phase_that_lasts_counts_up_to_now(box: BoxWriter, tmp_path: Path) -> None:
    write(tmp_path / "proc/9/schedstat", "100 3500000000 7\n")
    found = PaceMeter(9, BoxReader(box.path), Procfs(tmp_path / "proc")).read(STAT, 100.0)
    assert found["phase_s|data"] == 1.5
    assert 7.0 <= found["phase_s|forward"] < 60.0
    assert (found["garbage_s"], found["run_delay_s"], found["major_faults"]) == (0.25, 3.5, 7.0)
    assert found["throttled_s"] == 0.0


def test_what_the_probes_leave_out_is_told(box: BoxWriter, tmp_path: Path) -> None:
    def told() -> tuple[float, float]:
        found = PaceMeter(9, BoxReader(box.path), Procfs(tmp_path / "proc")).read(STAT, 100.0)
        return found["samples_left_out"], found["sample_stride"]

    assert told() == (0, 1)
    box.live[Live.SAMPLES_LEFT_OUT], box.live[Live.SAMPLE_STRIDE] = 12, 8
    assert told() == (12, 8)


def test_nothing_is_told_before_the_first_step_or_again_at_once(box: BoxWriter, tmp_path: Path) -> None:
    meter = PaceMeter(9, BoxReader(box.path), Procfs(tmp_path / "proc"))
    assert meter.read(STAT, 100.0)
    assert meter.read(STAT, 100.2) == {}
    assert meter.read(STAT, 100.5)
    box.live[Live.STEP] = 0
    assert meter.read(STAT, 200.0) == {}


@pytest.mark.parametrize(
    ("mounted", "cgroup", "text"),
    [
        ("cg/job/cpu.stat", "0::/job\n", "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500000\n"),
        ("cg/cpu/job/cpu.stat", "4:cpu,cpuacct:/job\n0::/\n", "nr_periods 5\nthrottled_time 1500000000\n"),
        ("cg/cpu,cpuacct/job/cpu.stat", "4:cpu,cpuacct:/job\n", "throttled_time 1500000000\n"),
    ],
)
def test_throttling_is_read_from_either_version_of_cgroups(
    tmp_path: Path, mounted: str, cgroup: str, text: str
) -> None:  # fmt: skip
    write(tmp_path / mounted, text)
    write(tmp_path / "proc/9/cgroup", cgroup)
    path = Cgroups(Procfs(tmp_path / "proc"), tmp_path / "cg").cpu_stat(9)
    assert path == tmp_path / mounted
    assert throttled_s(path) == 1.5


def test_where_no_quota_is_counted_nothing_is_throttled(tmp_path: Path) -> None:
    write(tmp_path / "proc/9/cgroup", "0::/job\n")
    assert Cgroups(Procfs(tmp_path / "proc"), tmp_path / "cg").cpu_stat(9) is None
    assert throttled_s(None) == throttled_s(tmp_path / "gone") == 0.0


def test_major_faults_and_the_wait_for_a_cpu_are_read_from_the_real_proc(tmp_path: Path) -> None:
    proc = Procfs()
    stat = proc.stat(1)
    assert stat is not None
    assert stat.major_faults >= 0
    assert proc.run_delay_s(1) >= 0.0
    assert proc.run_delay_s(-1) == 0.0
