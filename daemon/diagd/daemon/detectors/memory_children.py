"""Processes that a rank starts and never ends: each may be small, and all together they fill the memory."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.grows import CHILD_RSS
from diagd.daemon.detectors.memory import newest, size_text
from diagd.daemon.state.job import JobState

KIND = "memory.host_leak"
COUNT, SIZE = "memory/child_count", "memory/child_rss"
MORE = 10  # of them: a script's helpers are fewer, and are there before it trains
RAISES = 4  # looks, seconds apart, at which there were more than before, never fewer
STEPS = 40  # of the training, meanwhile
LATELY = 1 / 3  # of these steps: then there came another one still


def children(state: JobState) -> Iterator[Finding]:
    """One finding for all ranks that do."""
    found = {rank: grown for rank in state.signals.ranks(COUNT) if (grown := _grown(state, rank)) is not None}
    if not found:
        return
    ranks = tuple(sorted(found))
    since, before, now = found[ranks[0]]
    bytes_ = newest(state, ranks[0], SIZE) or 0.0
    who = f"{words.ranks_text(ranks)} {words.verb(ranks, 'starts', 'start')}"
    text = (
        f"{who} ever more child processes and {words.verb(ranks, 'ends', 'end')} none: {before} at step {since}, {now}"
        f" now, {size_text(bytes_)} together"
    )
    evidence = tuple(
        Evidence(f"{found[r][1]} child processes at step {found[r][0]}, {found[r][2]} now", "kernel", r)
        for r in ranks[:8]
    )
    why = "each start of a process is kept, and nothing ends or joins it"
    yield Finding(
        kind=KIND, severity=Severity.WARNING, ranks=ranks, summary=words.shortened(text), step=since,
        causes=(Cause("children", why, 0.8, Basis.OBSERVATION, evidence),),
        names=("child process", CHILD_RSS), sure=True, goes_on=True, key="children",
    )  # fmt: skip


def _grown(state: JobState, rank: int) -> tuple[int, int, int] | None:
    """Since which step, from how many and to how many; None where they do not grow in number."""
    series = state.signals.series(rank, COUNT)
    if series is None or len(series) < RAISES or series.steps[-1] < 1:
        return None
    trained = series.steps >= 1
    steps, counts = series.steps[trained], series.values[trained]
    fell = np.flatnonzero(np.diff(counts) < 0)
    first = int(fell[-1]) + 1 if len(fell) else 0
    steps, counts = steps[first:], counts[first:]
    raised = np.flatnonzero(np.diff(counts) > 0)
    if len(raised) < RAISES or counts[-1] - counts[0] < MORE:
        return None
    took = int(steps[-1] - steps[0])
    still = steps[-1] - steps[raised[-1] + 1] <= LATELY * took
    if took < STEPS or not still or len(np.unique(steps[raised + 1])) < RAISES:
        return None
    return int(steps[raised[0]]), int(counts[0]), int(counts[-1])
