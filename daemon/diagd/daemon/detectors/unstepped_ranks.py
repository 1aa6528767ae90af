"""Ranks that go on through the same passes as their replicas, and no longer step their optimizer.

Steps cannot be held side by side then, as these ranks come to none any more; how often all have met goes on to tell.
"""

from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors.replicas import CLOCK
from diagd.daemon.state.job import JobState

MISSING = 20  # steps: more than replicas can be apart that meet in each of them
OFTEN = 0.5  # collectives a step: ranks that meet less may well be so far apart
MOST_SKIPPED = 0.5  # of them by a gradient scaler: its own rule tells


class Stopped(NamedTuple):
    """Of some ranks: which no longer step, after which step, and how many the others have made since."""

    ranks: tuple[int, ...]
    after: int
    missing: int
    met: int  # collectives of all of them since, as the first of these ranks has counted them


def stopped(state: JobState, ranks: tuple[int, ...]) -> Stopped | None:
    """Which of these replicas, or holders of shards, have stopped; None where none has."""
    if any(state.status(rank).gone for rank in ranks):
        return None
    steps = {rank: int(state.columns.step[rank]) for rank in ranks}
    lead = max(steps, key=lambda rank: steps[rank])
    behind = tuple(rank for rank in ranks if 1 <= steps[rank] <= steps[lead] - MISSING)
    if not behind or len({steps[rank] for rank in behind}) > 1:
        return None
    met = {rank: _met_since(state, lead, rank, steps[rank]) for rank in behind}
    since = _met_since(state, lead, lead, steps[behind[0]])
    per_step = since / (steps[lead] - steps[behind[0]])
    # So many steps they would have made by now, had each of their meetings been in one.
    if per_step < OFTEN or any(number < MISSING * per_step for number in met.values()):
        return None
    if any(_skipped(state, rank, steps[rank]) >= MOST_SKIPPED * MISSING for rank in behind):
        return None
    if not all(_passes_since(state, rank, steps[rank]) for rank in behind):
        return None
    return Stopped(behind, steps[behind[0]], steps[lead] - steps[behind[0]], met[behind[0]])


def _met_since(state: JobState, lead: int, rank: int, step: int) -> int:
    """Collectives of all ranks that a rank has entered since that step of the leading one; 0 where it is not known."""
    clock = state.signals.series(lead, CLOCK)
    whole = tuple(range(state.world_size))
    groups = (group for group in state.detail(rank).groups if tuple(sorted(group.ranks)) == whole)
    entered = sum(max(group.enqueued, 0) for group in groups)
    if clock is None or not (clock.steps <= step).any():
        return 0
    by_then = float(clock.values[np.flatnonzero(clock.steps <= step)[-1]])
    return max(int(entered - by_then), 0)


def _passes_since(state: JobState, rank: int, step: int) -> bool:
    """Whether the rank computes on: one that has run out of batches may only answer the others, as under `Join`."""
    pace = state.paces.get(rank)
    since = [one.phases.get("backward", 0.0) for one in pace.samples if one.step == step] if pace is not None else []
    return len(since) > 1 and since[-1] > since[0]


def _skipped(state: JobState, rank: int, step: int) -> int:
    series = state.signals.series(rank, "scaler/skipped")
    return int(series.values[series.steps > step].sum()) if series is not None else 0
