"""Microseconds of Python that the probes add to a collective and to a step, in the rank itself, caches warm."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.figures import Interval, Pair, bootstrap, median_difference
from tests.live.cases import Case
from tests.live.job import LiveJob

JOB = Path(__file__).resolve().parent / "jobs/micro_job.py"
COLLECTIVE_US, STEP_US = 5, 30


def measure(blocks: int) -> dict[str, Any]:
    """The differences, as intervals, and what the thing itself takes."""
    case = Case(name="micro", script=JOB, nproc=1)
    with LiveJob([*case.command(), str(blocks)], [JOB]) as job:
        if job.finish(300) != 0:
            raise RuntimeError(job.tail(60))
        raw = json.loads((job.folder / "micro.json").read_text(encoding="utf-8"))
    return {name: _compared(found) for name, found in raw.items()}


def _compared(found: dict[str, list[float]]) -> dict[str, Any]:
    compared: dict[str, Any] = {
        "bare_us": sorted(found["without"])[len(found["without"]) // 2],
        "added_us": _difference(found["with"], found["without"]),
    }
    if "switched_off" in found:
        compared["switched_off_us"] = _difference(found["switched_off"], found["without"])
    return compared


def _difference(on: Sequence[float], off: Sequence[float]) -> Interval:
    return bootstrap([Pair([a], [b]) for a, b in zip(on, off, strict=True)], median_difference)


def shown(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table."""
    return [_row(name, found) for name, found in result.items()]


def _row(name: str, found: dict[str, Any]) -> list[str]:
    added, bare = Interval(*found["added_us"]).shown(2), f"bare {found['bare_us']:.0f} µs"
    if "switched_off_us" not in found:
        return [f"Python added to {name}", f"{added} µs", f"< {STEP_US} µs; {bare}; between samples, caches warm"]
    off = Interval(*found["switched_off_us"]).shown(2)
    goal = f"< {COLLECTIVE_US} µs; {bare}; with the probes switched off + {off}"
    return [f"Python added to a collective: {name}", f"{added} µs", goal]
