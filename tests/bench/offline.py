"""A large job's flight-recorder dumps through `diagd analyze`, and through torch's own analyzer on the same files."""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import dumps
from tests.live.job import DIAGD

ENTRIES = 2000  # what torch's ring holds
LIMIT_S = 1800.0
TORCHS = (sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "--prefix", "rank_")
EVERY_S = 0.2


def measure(ranks: int) -> dict[str, Any]:
    """Both on the same files, diagd first (so that it is the one that reads them from a disk not yet read)."""
    with tempfile.TemporaryDirectory(prefix="diagd-bench-") as folder:
        place = Path(folder) / "dumps"
        guilty = dumps.write(place, ranks, ENTRIES)
        ours = watched([DIAGD, "analyze", str(place)])
        theirs = watched([*TORCHS, str(place)])
    return {
        "ranks": ranks, "entries": ENTRIES,
        "diagd": {**ours, "right": f"rank {guilty} never entered" in ours.pop("said")},
        "torch": {**theirs, "right": f"missing ranks: {{{guilty}}}" in theirs.pop("said")},
    }  # fmt: skip


def watched(command: list[str]) -> dict[str, Any]:
    """Run it: time and CPU, the highest memory of it and its children together (PSS), and what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as said:
        began, peak_mib = time.monotonic(), 0.0
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None and time.monotonic() - began < LIMIT_S:
            peak_mib = max(peak_mib, sum(_pss_mib(pid) for pid in _tree(process.pid)))
            time.sleep(EVERY_S)
        took_s, ended = time.monotonic() - began, process.poll() is not None
        process.kill()
        process.wait()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        said.seek(0)
        text = said.read().decode(errors="replace")
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return {"took_s": took_s, "cpu_s": cpu_s, "peak_mib": peak_mib, "ended": ended, "said": text}


def _tree(pid: int) -> list[int]:
    try:
        below = [task.read_text().split() for task in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has just ended
        return [pid]
    return [pid, *(one for children in below for child in children for one in _tree(int(child)))]


def _pss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def shown(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table."""
    what = f"dumps of {result['ranks']} ranks x {result['entries']} entries"
    return [
        [f"`diagd analyze`, {what}", _figure(result["diagd"]), "< 60 s and < 4 GiB on 2 cores"],
        ["… torch's own analyzer on the same files", _figure(result["torch"]), "for comparison"],
    ]


def _figure(one: dict[str, Any]) -> str:
    took = f"{one['took_s']:.1f} s" if one["ended"] else f"not done after {one['took_s']:.0f} s"
    verdict = "names the rank" if one["right"] else "does not name the rank"
    return f"{took} ({one['cpu_s']:.0f} s of CPU), {one['peak_mib'] / 1024:.2f} GiB, {verdict}"
