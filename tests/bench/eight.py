"""Eight ranks: what the watch process costs while all is well, and how long a dump takes when two are mute."""

import os
import re
import signal
import statistics
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.live.cases import Case
from tests.live.job import DIAGD, LiveJob

from diagd.daemon.agent.watchfulness import STEADY_AFTER_S

JOB = Path(__file__).resolve().parent / "jobs/eight_job.py"
RANKS = 8
PACE_S = 0.2  # eight ranks on few cores must leave some time over
STOPPED, HOLDER = 2, 5
PARTIAL = 3  # `diagd dump`: some part of some rank is missing, which the summary names
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024


def measure(watch_s: float, dumps: int) -> dict[str, Any]:
    """Start the job once, for both."""
    case = Case(name="eight", script=JOB, nproc=RANKS)
    # The dump that is timed is the one that a person asks for, not one taken for a hang at the same moment.
    flags = ("--hang-after", "600")
    with LiveJob([*case.command(), str(PACE_S), str(HOLDER)], [JOB], flags=flags) as job:
        job.until_said("steady", 180)
        watch = _measure_watch(job, watch_s)
        time.sleep(STEADY_AFTER_S)  # by now it is looked at less often
        steady = _measure_watch(job, watch_s)
        _break(job)
        return {"watch": watch, "steady": steady, "dump": _measure_dump(job, dumps)}


def _measure_watch(job: LiveJob, watch_s: float) -> dict[str, Any]:
    pid = job.watch_pid()
    if pid is None:
        raise RuntimeError(f"there is no watch process\n{job.tail()}")
    time.sleep(5)  # the ranks' start is over
    pids = {"watch": pid, "supervisor": job.process.pid}
    before, began = {name: _cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
    memory: dict[str, list[tuple[float, float]]] = {name: [] for name in pids}
    while time.monotonic() - began < watch_s:
        for name, pid in pids.items():
            memory[name].append(_memory(pid))
        time.sleep(1)
    took = time.monotonic() - began
    return {
        name: {
            "pss_mib": max(pss for pss, _ in memory[name]),
            "rss_mib": max(rss for _, rss in memory[name]),
            "cpu_percent": 100 * (_cpu_s(pid) - before[name]) / took,
            "seconds": took,
        }
        for name, pid in pids.items()
    }


def _break(job: LiveJob) -> None:
    """Let one rank hold its GIL, then stop another."""
    (job.folder / "hold").touch()
    job.until_said("holding the GIL", 30)
    ranks = _rank_pids(job)
    os.kill(ranks[STOPPED], signal.SIGSTOP)
    time.sleep(8)  # diagd's own dump for the incident is over


def _rank_pids(job: LiveJob) -> dict[int, int]:
    found = {}
    for pid in job.pids():
        with suppress(OSError):
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            rank = next((int(e.removeprefix(b"RANK=")) for e in environ if e.startswith(b"RANK=")), None)
            if rank is not None and JOB.name.encode() in words:
                found[rank] = pid
    return found


def _measure_dump(job: LiveJob, dumps: int) -> dict[str, Any]:
    taken, own, said = [], [], ""
    for number in range(dumps):
        folder = job.folder / f"dump{number}"
        command = [DIAGD, "dump", "--job", job.job_id, "-o", str(folder)]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        taken.append(time.monotonic() - began)
        if done.returncode not in (0, PARTIAL):
            raise RuntimeError(f"diagd dump ended with {done.returncode}: {done.stderr}")
        if match := re.search(r"done in ([0-9.]+) s", done.stderr):
            own.append(float(match[1]))
        said = done.stdout + done.stderr
    return {
        "seconds": taken,
        "median_s": statistics.median(taken),
        "worst_s": max(taken),
        "own_median_s": statistics.median(own) if own else None,
        "said": said,
        "files": sum(path.is_file() for path in folder.rglob("*")),
    }


def _cpu_s(pid: int) -> float:
    """Its own and that of the helpers it has waited for."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return sum(map(int, text[text.rindex(")") + 2 :].split()[11:15])) / TICKS


def _memory(pid: int) -> tuple[float, float]:
    """Proportional and resident size."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:] if ":" in line
    )
    return tuple(int(fields[name].split()[0]) * 1024 / MIB for name in ("Pss", "Rss"))  # type: ignore[return-value]


def shown(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table."""
    watch, supervisor, dump = result["watch"]["watch"], result["watch"]["supervisor"], result["dump"]
    steady = result.get("steady", {}).get("watch")
    later = f", {steady['cpu_percent']:.1f} % once it has run for a minute in order" if steady else ""
    own = f"; by its own count {dump['own_median_s']:.1f} s" if dump["own_median_s"] is not None else ""
    return [
        [
            f"agent and embedded aggregator, {RANKS} ranks: memory",
            f"{watch['pss_mib']:.0f} MiB PSS, {watch['rss_mib']:.0f} MiB RSS",
            f"< 100 MB; highest of {watch['seconds']:.0f} s; `diagd run` itself {supervisor['pss_mib']:.0f} MiB PSS",
        ],
        [
            "… CPU",
            f"{watch['cpu_percent']:.1f} % of a core at first{later}",
            f"< 2 %; over {watch['seconds']:.0f} s; `diagd run` itself {supervisor['cpu_percent']:.2f} %",
        ],
        [
            f"dump of {RANKS} ranks, one stopped, one holding the GIL",
            f"{dump['median_s']:.1f} s, worst {dump['worst_s']:.1f} s",
            f"< 3 s; {len(dump['seconds'])} dumps of {dump['files']} files, `diagd dump` from start to exit{own}",
        ],
    ]
