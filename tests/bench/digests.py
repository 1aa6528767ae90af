"""How fast tensors are digested, beside the memory's own speed: torch's sum of int64, right before each digest."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.figures import Interval, Pair, bootstrap, median_of_ratios

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "tests/bench/jobs/digest_job.py"
ROOTS = ("cuda_ext",)
LIMIT_S = 1800
GOALS = {"compiled, bits alone": 0.6, "torch operations, bits alone": 0.2}


def measure(rounds: int) -> dict[str, Any]:
    """Of each path and dtype the bytes a second, and their share of the plain read's."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ROOTS)}
    command = [sys.executable, str(JOB), str(rounds)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S)
    raw = json.loads(done.stdout)
    paths = {name: _path(raw["bytes"], raw["read_s"][name], took) for name, took in raw["took_s"].items()}
    reads = [one for taken in raw["read_s"].values() for one in taken]
    return {
        "status": raw["status"], "rounds": rounds, "paths": paths,
        "read_gb_s": raw["bytes"] / statistics.median(reads) / 1e9,
        "small_bytes": raw["small_bytes"], "small_us": 1e6 * statistics.median(raw["many_s"]),
    }  # fmt: skip


def _path(nbytes: int, read_s: list[float], took_s: list[float]) -> dict[str, Any]:
    pairs = [Pair([read], [took]) for read, took in zip(read_s, took_s, strict=True)]
    return {"gb_s": nbytes / statistics.median(took_s) / 1e9, "share": bootstrap(pairs, median_of_ratios)}


def shown(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table."""
    rows = []
    for name, found in result["paths"].items():
        share, goal = Interval(*found["share"]), GOALS.get(name)
        figure = f"{found['gb_s']:.1f} GB/s, {share.shown(2)} of a plain read"
        about = "with count, norm and maximum of the values" if goal is None else f"≥ {goal:.0%}"
        rows.append([f"digest on one core: {name}", figure, f"{about}; {result['rounds']} pairs"])
    about = (
        f"{result['small_bytes']} bytes each, a thousand in one call; a plain read here: {result['read_gb_s']:.1f} GB/s"
    )
    rows.append(["… of a small float32 tensor", f"{result['small_us']:.1f} µs", f"{about}; {result['status']}"])
    rows.append(["digest on a GPU", "not measured", "≥ 85 % of its read bandwidth; python cuda_ext/device_check.py"])
    return rows
