"""Where a rank's time goes: totals that say, between two looks, what a step is made of and what held it up."""

import time
from pathlib import Path

from diagd.daemon.agent.cgroup import throttled_s
from diagd.daemon.agent.procfs import Procfs, Stat
from diagd.probes.box.layout import Live, Phase
from diagd.probes.box.reader import BoxReader

TOLD_EVERY_S = 0.45
PHASES = tuple(phase.name.lower() for phase in Phase)


class PaceMeter:
    """One rank's totals, as `Facts.extra` carries them.

    `phase_s|NAME`: seconds in each phase; `garbage_s`: in Python's collector; `run_delay_s`: ready to run and without a
    CPU; `throttled_s`: by the cgroup's quota; `major_faults`: pages that had to come from disk; `disk_wait_s`: the main
    thread waited for block devices, where the kernel counts that (sysctl kernel.task_delayacct); `samples_left_out`,
    `sample_stride`: what the probes do not see for their budget's sake.
    """

    def __init__(self, pid: int, reader: BoxReader, proc: Procfs, cpu_stat: Path | None = None) -> None:
        self._pid = pid
        self._reader = reader
        self._proc = proc
        self._cpu_stat = cpu_stat
        self._told_s = 0.0

    def read(self, stat: Stat, now_s: float) -> dict[str, float]:
        """The totals; nothing where they were read just now, or before the first step."""
        if now_s - self._told_s < TOLD_EVERY_S or self._reader.live(Live.STEP) < 1:
            return {}
        self._told_s = now_s
        return {
            **self._phases(),
            "garbage_s": self._reader.live(Live.GARBAGE_NS) / 1e9,
            "run_delay_s": self._proc.run_delay_s(self._pid),
            "throttled_s": throttled_s(self._cpu_stat),
            "major_faults": float(stat.major_faults),
            "disk_wait_s": stat.disk_wait_s,
            "samples_left_out": float(self._reader.live(Live.SAMPLES_LEFT_OUT)),
            "sample_stride": float(max(self._reader.live(Live.SAMPLE_STRIDE), 1)),
        }

    def _phases(self) -> dict[str, float]:
        """Seconds in each phase, with the one that lasts."""
        live = self._reader.live
        totals = [live(Live.PHASE_TOTALS + number) / 1e9 for number in range(len(PHASES))]
        current, since_ns = live(Live.PHASE), live(Live.PHASE_NS)
        if 0 <= current < len(totals) and since_ns > 0:
            totals[current] += max(time.monotonic_ns() - since_ns, 0) / 1e9
        return {f"phase_s|{name}": total for name, total in zip(PHASES, totals, strict=True)}
