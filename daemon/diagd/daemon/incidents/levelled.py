"""What grew and grows no more: a cache that is full, a pool that is filled up, files that are all open."""

from typing import NamedTuple

import numpy as np

from diagd.daemon.incidents.incident import Incident
from diagd.daemon.state.job import JobState
from diagd.daemon.state.signals import Series

KIND = "memory.host_leak"
# By the key of the incident, as of the finding: of what it was told.
SERIES = {
    "rss": "memory/floor", "worker rss": "memory/worker_rss", "child rss": "memory/child_rss",
    "descriptors": "memory/fds", "children": "memory/child_count",
}  # fmt: skip
LEVEL = 0.03  # of all that it has grown by: so much it may still have risen by since it is level
LASTS = 0.4  # of the steps over which it grew, for which it must have been level since
LEAST_STEPS, LEAST_SAMPLES = 30, 5
FORECAST = "; at this pace"  # what a summary goes on with that no longer holds


class Levelled(NamedTuple):
    """The step since which it is level, and for how many it was by now."""

    since: int
    steps: int


def levelled(incident: Incident, state: JobState) -> Levelled | None:
    """Since when what grew on its ranks is level on all of them; None where it is not, or not yet for long enough."""
    name = SERIES.get(incident.key) if incident.kind == KIND and incident.attempt == state.attempt else None
    if name is None or incident.step is None:
        return None
    found = [_level(state.signals.series(rank, name), incident.step) for rank in incident.ranks]
    known = [one for one in found if one is not None]
    if not found or len(known) < len(found):
        return None
    return Levelled(max(one.since for one in known), min(one.steps for one in known))


def _level(series: Series | None, since: int) -> Levelled | None:
    if series is None:
        return None
    told = (series.steps >= since) & np.isfinite(series.values)
    steps, values = series.steps[told], series.values[told]
    if len(values) < 2 * LEAST_SAMPLES:
        return None
    # Peaks within it are none of what is kept: the least of the values from each step on counts.
    floors = np.minimum.accumulate(values[::-1])[::-1]
    grown = float(floors[-1] - floors[0])
    near = np.flatnonzero(floors >= floors[-1] - LEVEL * grown)
    at, last = int(steps[near[0]]), int(steps[-1])
    lasts = max(LASTS * (at - since), LEAST_STEPS)
    if grown <= 0 or last - at < lasts or len(near) < LEAST_SAMPLES or values[near[0] :].max() > values[-1] + grown:
        return None
    return Levelled(at, last - at)


def with_level(incident: Incident, found: Levelled) -> str:
    """The incident's summary without its forecast, and since when it no longer holds."""
    end = f"; level since step {found.since}, for {found.steps} steps by now"
    return incident.summary.partition(FORECAST)[0][: 300 - len(end)] + end
