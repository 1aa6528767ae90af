"""Pinned host memory that a rank keeps more and more of: torch caches it by powers of two and never gives it back.

It is locked into memory, so the kernel can swap none of it out, and counts in no process's anonymous memory: only
torch's own counters show it.
"""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.growth import MIB, Growth, growth
from diagd.daemon.detectors.memory import Forecast, forecast, newest, size_text
from diagd.daemon.state.job import JobState

PINNED = "memory/pinned"
LEAST_BYTES = 64 * MIB
LEAST_PART = 0.25  # of what was pinned when it began
LONG_STEPS = 120  # blocks are cached by size: batches of all lengths have been met by then


def pinned(state: JobState) -> Iterator[Finding]:
    """A finding for each rank whose pinned memory goes on growing."""
    for rank in state.signals.ranks(PINNED):
        series = state.signals.series(rank, PINNED)
        found = growth(series.steps, series.values, LEAST_BYTES) if series is not None else None
        if found is not None and found.steps >= LONG_STEPS and found.grown >= LEAST_PART * found.before:
            yield _finding(state, rank, found)


def _finding(state: JobState, rank: int, found: Growth) -> Finding:
    room = newest(state, rank, "memory/available")
    ahead: Forecast | None = forecast(state, rank, found, room) if room is not None else None
    text = f"rank {rank} pins {size_text(found.slope)} more of the host's memory at each step since step {found.since}"
    text += f", {size_text(found.grown)} so far" + (f"; at this pace it runs out {ahead.text}" if ahead else "")
    held = f"{size_text(found.before)} at step {found.since}, {size_text(found.now)} at step {found.until}"
    seen = Evidence(f"pinned by torch: {held}", "allocator", rank, found.until)
    why = "buffers are pinned anew at each step and kept, or freed ones are of sizes that are not asked for again"
    return Finding(
        kind="memory.host_leak",
        severity=Severity.CRITICAL if ahead is not None and ahead.near else Severity.WARNING,
        ranks=(rank,),
        summary=words.shortened(text),
        causes=(Cause("pinned", why, 0.7, Basis.INFERENCE, (seen,)),),
        names=("pinned",),
        step=found.since,
        sure=True,
        goes_on=True,
        key=f"pinned:{rank}",
    )
