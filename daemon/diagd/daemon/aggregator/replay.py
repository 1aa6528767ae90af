"""A recorded run through the detectors of today."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from diagd.daemon.aggregator.judging import Judge, default_judge
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.record.record import RecordReader
from diagd.daemon.state.job import JobState

TICK_S = 0.25


def replay(
    record: Path | RecordReader, judge: Judge | None = None, *, tick_s: float = TICK_S
) -> Iterator[tuple[JobState, Sequence[Incident]]]:
    """Judge as the aggregator did, every `tick_s` of recorded time; yields the state and all incidents after each.

    A record of several jobs yields each job's state in turn; `state.job_id` tells them apart. Whether the record was
    whole its reader says afterwards.

    Raises:
        OSError: The file cannot be read.
        NotARecord: It holds something else.
    """
    judge = judge or default_judge()
    loops: dict[str, JobLoop] = {}
    next_s = 0.0
    for entry in RecordReader(record) if isinstance(record, Path) else record:
        next_s = next_s or entry.received_s + tick_s
        while next_s <= entry.received_s:
            yield from _tick(loops, next_s)
            next_s += tick_s
        if entry.job_id not in loops:
            loops[entry.job_id] = JobLoop(entry.job_id, judge)
        loops[entry.job_id].put(entry)
    yield from _tick(loops, next_s)


def _tick(loops: dict[str, JobLoop], now_s: float) -> Iterator[tuple[JobState, Sequence[Incident]]]:
    for loop in loops.values():
        loop.tick(now_s)
        yield loop.state, loop.book.incidents
