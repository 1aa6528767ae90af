"""Step time with the probes over without, inside one run: they are switched off and on in blocks of steps.

Whole runs differ by several percent from one to the next, which would hide what is sought; neighbouring blocks do not.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.figures import Interval, Pair, bootstrap, median_of_ratios, ratio_of_medians
from tests.live.cases import Case
from tests.live.job import LiveJob

from diagd.probes.box.layout import Live
from diagd.probes.box.reader import BadBox, BoxReader

JOB = Path(__file__).resolve().parent / "jobs/steps_job.py"
BLOCK = 20  # steps
WARM_BLOCKS = 4
ALL_ALONG = 0.6  # of the steps the watch process runs; in the rest, for a comparison of its own, it rests in turns
WATCH_PERIOD_S = 2.0


class Setting(NamedTuple):
    """A job whose steps take 20 to 50 ms."""

    ranks: int
    width: int
    batch: int


SETTINGS = (Setting(2, 1280, 16), Setting(3, 1024, 8))


class Step(NamedTuple):
    """One step of one rank, by the end of it."""

    number: int
    end_ns: int
    on: bool
    took_s: float


def measure(blocks: int) -> dict[str, Any]:
    """All settings."""
    return {f"{setting.ranks} ranks": _measure(setting, blocks) for setting in SETTINGS}


def _measure(setting: Setting, blocks: int) -> dict[str, Any]:
    case = Case(name="steps", script=JOB, nproc=setting.ranks)
    words = ["--steps", str(BLOCK * blocks), "--width", str(setting.width), "--batch", str(setting.batch)]
    with LiveJob([*case.command(), *words], [JOB], environ={"DIAGD_BENCH": f"blocks:{BLOCK}"}) as job:
        with _resting_watch(job, int(ALL_ALONG * BLOCK * blocks)) as rests:
            code = job.finish(60 + blocks * BLOCK * 0.5)
        if code != 0:
            raise RuntimeError(f"the job ended with {code}\n{job.tail()}")
        facts = [json.loads((job.folder / f"rank{rank}.json").read_text()) for rank in range(setting.ranks)]
        blocks_of = [_blocks(job.folder / f"rank{rank}.bench", fact.pop("ends")) for rank, fact in enumerate(facts)]
    by_block = [[step for rank in ranks for step in rank] for ranks in zip(*blocks_of, strict=False)][WARM_BLOCKS:]
    return _summary(by_block, rests, facts)


def _summary(
    blocks: Sequence[Sequence[Step]], rests: Sequence[tuple[int, int]], facts: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    until_ns = rests[0][0] if rests else time.monotonic_ns()
    undisturbed = [block for block in blocks if block and block[-1].end_ns < until_ns]
    probes = _pairs([([s.took_s for s in block], block[0].on) for block in undisturbed])
    whole = _whole([step for block in blocks for step in block], rests)
    return {
        "steps": sum(len(pair.on) + len(pair.off) for pair in probes) // len(facts),
        "blocks": 2 * len(probes),
        "step_ms": 1000 * _median([value for pair in probes for value in pair.off]),
        "ratio": bootstrap(probes, ratio_of_medians),
        "paired_ratio": bootstrap(probes, median_of_ratios),
        "whole_ratio": bootstrap(whole, ratio_of_medians) if len(whole) > 2 else None,
        "own_share": _own_share(facts),
        "parameters": facts[0]["parameters"],
        "verified": verified(facts),
        "ranks": facts,
    }


def verified(facts: Sequence[dict[str, Any]]) -> list[str]:
    """Why the probes were not on in full; empty where they were."""
    found = []
    for rank, fact in enumerate(facts):
        expected = fact["steps"] // 2  # one all-reduce a step, while they are on
        if fact["operations"] < 0.9 * expected:
            found.append(f"rank {rank}: {fact['operations']} operations in the box, {expected} expected")
        if fact["errors"] or fact["off"]:
            found.append(f"rank {rank}: {fact['errors']} errors, probes off {fact['off']:#x}")
        if not fact["site"] or fact["numel"] < 1:
            found.append(f"rank {rank}: operations without call site or shape")
        found += [f"rank {rank}: {note}" for note in fact["notes"] if "left out" in note or "is off" in note]
    return found


def _blocks(path: Path, ends: Sequence[int]) -> list[list[Step]]:
    """The steps by block; the first of each is left out, as the switch falls into it.

    Args:
        path: Of lines with a block's last step, when it ended, and whether the probes were on.
        ends: When the job's rounds were over, each of which is a step, in monotonic nanoseconds.
    """
    rows = [tuple(map(int, line.split())) for line in path.read_text(encoding="utf-8").splitlines()]
    found, first = [], 1
    for last, _, on in rows:
        inner = range(first + 1, last + 1)  # the first step of all begins with what torch loads for it
        found.append([Step(n, ends[n - 1], bool(on), (ends[n - 1] - ends[n - 2]) / 1e9) for n in inner])
        first = last + 1
    return found


def _pairs(blocks: Sequence[tuple[Sequence[float], bool]]) -> list[Pair]:
    """Each block with its neighbour of the other kind, no block twice."""
    found = []
    for (first, on), (second, other) in zip(blocks[::2], blocks[1::2], strict=False):
        if on != other:
            found.append(Pair(first, second) if on else Pair(second, first))
    return found


def _whole(steps: Sequence[Step], rests: Sequence[tuple[int, int]]) -> list[Pair]:
    """Probes on while the watch runs, over probes off while it rests; each rest with the run that follows it."""
    found = []
    for (began, ended), (following, _) in pairwise(rests):
        off = [s.took_s for s in steps if not s.on and _inside(s, began, ended)]
        on = [s.took_s for s in steps if s.on and _inside(s, ended, following)]
        if on and off:
            found.append(Pair(on, off))
    return found


def _inside(step: Step, began_ns: int, ended_ns: int) -> bool:
    return began_ns <= step.end_ns - step.took_s * 1e9 and step.end_ns <= ended_ns


@contextmanager
def _resting_watch(job: LiveJob, from_step: int) -> Iterator[list[tuple[int, int]]]:
    """From a step on, stop the watch process for a while, again and again; when, in monotonic nanoseconds."""
    rests: list[tuple[int, int]] = []
    over = threading.Event()

    def run() -> None:
        while not over.wait(WATCH_PERIOD_S):
            pid = job.watch_pid() if rests or _step_of(job) >= from_step else None
            if pid is None:
                continue
            with suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
                began = time.monotonic_ns()
                over.wait(WATCH_PERIOD_S)
                rests.append((began, time.monotonic_ns()))
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=run, name="resting-watch", daemon=True)
    thread.start()
    try:
        yield rests
    finally:
        over.set()
        thread.join()


def _step_of(job: LiveJob) -> int:
    """From the boxes: the report is written only when something happens."""
    for path in job.boxes():
        with suppress(OSError, BadBox), closing(BoxReader(path)) as box:
            return box.live(Live.STEP)
    return -1


def _own_share(facts: Sequence[dict[str, Any]]) -> float:
    """What the ranks say themselves that the probes cost, of the time that these were on."""
    return max(float(fact["overhead_s"] / (fact["seconds"] / 2)) for fact in facts)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def shown(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table: what, figure, goal."""
    rows = []
    for name, found in result.items():
        ratio, paired = Interval(*found["ratio"]), Interval(*found["paired_ratio"])
        size = f"{found['parameters'] / 1e6:.1f} M parameters, steps of {found['step_ms']:.0f} ms"
        sample = f"{found['steps']} steps in {found['blocks']} blocks"
        state = "; ".join(found["verified"]) or "probes verified to be on, none shed"
        rows.append(
            [f"step time with probes over without, {name}", ratio.shown(), f"≤ 1.01; {size}, {sample}; {state}"]
        )
        rows.append(["… median over neighbouring blocks", paired.shown(), "the same steps"])
        if found["whole_ratio"]:
            whole = Interval(*found["whole_ratio"]).shown()
            rows.append(
                ["… probes and watch process over neither", whole, "the watch process stopped in turns as well"]
            )
        rows.append(["… what the ranks themselves count", f"{100 * found['own_share']:.3f} %", "budget 1 %"])
    return rows
