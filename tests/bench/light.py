"""CPU time that the probes add to a rank's step, in its own thread: switched off and on in blocks of one run."""

import json
from pathlib import Path
from typing import Any

from tests.bench.figures import Interval, Pair, bootstrap, mean_difference, median_difference
from tests.live.cases import Case
from tests.live.job import LiveJob

from diagd.probes.cost import LATER_NS

JOB = Path(__file__).resolve().parent / "jobs/light_job.py"
BLOCK, STEP_S = 20, 0.02
EARLY_S, WARM_S = LATER_NS / 1e9, 6.0  # until the samples are as rare as they will be, after the early steps


def measure(steps: int) -> dict[str, Any]:
    """The differences in microseconds, as intervals: of the early steps, and of those after them."""
    case = Case(name="light", script=JOB, nproc=1)
    with LiveJob([*case.command(), str(steps)], [JOB], environ={"DIAGD_BENCH": f"blocks:{BLOCK}"}) as job:
        if job.finish(60 + 3 * STEP_S * steps) != 0:
            raise RuntimeError(job.tail(60))
        took = json.loads((job.folder / "light.json").read_text(encoding="utf-8"))
        lines = (job.folder / "light.bench").read_text(encoding="utf-8").splitlines()
    switched = [tuple(map(int, line.split())) for line in lines]
    settled_s = EARLY_S + 4 * WARM_S
    return {
        "early": _compared(_pairs(took, switched, 1.0, EARLY_S)),
        "later": _compared(_pairs(took, switched, settled_s, float("inf"))),
    }


def _compared(pairs: list[Pair]) -> dict[str, Any]:
    return {
        "steps": sum(len(pair.on) + len(pair.off) for pair in pairs),
        "bare_us": sorted(value for pair in pairs for value in pair.off)[sum(len(pair.off) for pair in pairs) // 2],
        "median_us": bootstrap(pairs, median_difference),
        "mean_us": bootstrap(pairs, mean_difference),
    }


def _pairs(took: list[list[float]], switched: list[tuple[int, ...]], since_s: float, until_s: float) -> list[Pair]:
    """Neighbouring blocks that lie within, without the step at which each was switched."""
    found, before, first = [], None, 1
    for last, _, on in switched:
        steps = took[first:last]
        first = last + 1
        if not steps or not since_s <= steps[0][0] <= steps[-1][0] <= until_s:
            before = None
            continue
        values = [value for _, value in steps]
        if before is not None and before[1] != on:
            found.append(Pair(values, before[0]) if on else Pair(before[0], values))
            before = None
        else:
            before = values, on
    return found


def shown(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table."""
    names = {"early": f"in the first {EARLY_S:.0f} s", "later": "after that, once it has settled"}
    rows = []
    for key, found in result.items():
        median, mean = Interval(*found["median_us"]).shown(0), Interval(*found["mean_us"]).shown(0)
        bare = f"bare {found['bare_us']:.0f} µs"
        goal = f"< 30 µs; {found['steps']} steps, one in {1000 * STEP_S:.0f} ms, caches cold; {bare}"
        rows.append([f"CPU time added to a step with one collective, {names[key]}", f"{median} µs, mean {mean}", goal])
    return rows
