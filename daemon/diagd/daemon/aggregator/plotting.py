"""The series that a report shows: those that its incidents name, and those that each run is judged by."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from diagd.daemon.detectors.memory import growth_of, newest
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.state.job import JobState
from diagd.daemon.state.signals import Series

ALWAYS = ("loss", "grad_norm", "lr/0", "memory/rss")
MEMORY = "memory/"
FOLDERS = ("", "logged/", "memory/", "scaler/")  # where a name that an incident tells may be kept
MAX_PLOTS = 8
MAX_LINES = 4
MAX_POINTS = 240  # of a line; a phone's width in pixels is about that


def plots_of(state: JobState, incidents: Sequence[Incident]) -> list[dict[str, Any]]:
    """What the page draws: the metrics at fault first, each marked at the steps of the incidents."""
    names = list(dict.fromkeys([*_at_fault(state, incidents), *ALWAYS]))
    culprits = {rank for incident in incidents for rank in incident.ranks}
    marks = sorted({(incident.step, incident.kind) for incident in incidents if incident.step is not None})
    leaking = {rank for incident in incidents if incident.kind.startswith("memory.") for rank in incident.ranks}
    found = (_plot(state, name, culprits, marks, leaking) for name in names)
    return [plot for plot in found if plot is not None][:MAX_PLOTS]


def _at_fault(state: JobState, incidents: Iterable[Incident]) -> Iterable[str]:
    known = {name for rank in state.ranks() for name in state.signals.names(rank)}
    for incident in incidents:
        for name in incident.names:
            told = name.replace(" ", "_")
            yield from (folder + told for folder in FOLDERS if folder + told in known)
            yield from (f"{what}/{told}" for what in ("grad_norm", "update_norm") if f"{what}/{told}" in known)


def _plot(
    state: JobState, name: str, culprits: set[int], marks: Sequence[tuple[int, str]], leaking: set[int]
) -> dict[str, Any] | None:  # fmt: skip
    ranks = sorted(state.signals.ranks(name), key=lambda rank: (rank not in culprits, rank))[:MAX_LINES]
    lines = [(rank, series) for rank in sorted(ranks) if (series := state.signals.series(rank, name)) is not None]
    if not any(len(series.steps) > 1 for _, series in lines):
        return None
    last = max(int(series.steps[-1]) for _, series in lines if len(series.steps))
    return {
        "title": name.removeprefix("logged/"),
        "series": [{"label": f"rank {rank}", **_thinned(series)} for rank, series in lines],
        "marks": [{"step": step, "label": kind} for step, kind in marks if step <= last],
        "limit": None,
        "forecasts": [line for rank, _ in lines if rank in leaking and (line := _forecast(state, rank, name))],
    }


def _forecast(state: JobState, rank: int, name: str) -> dict[str, Any] | None:
    """Where a memory that grows will be: on until it is full, or for as many steps as it has grown so far."""
    found = growth_of(state, rank, name) if name.startswith(MEMORY) else None
    if found is None:
        return None
    room = newest(state, rank, MEMORY + "available")
    ahead = min(found.steps, found.steps_until(room)[0] if room is not None else found.steps)
    values = [found.now, found.now + found.slope * ahead]
    return {"label": f"rank {rank}", "steps": [found.until, found.until + ahead],
            "values": [float(f"{value:.6g}") for value in values]}  # fmt: skip


def _thinned(series: Series) -> dict[str, list[Any]]:
    """At most MAX_POINTS: of each stretch its lowest and its highest value, and each first that is not finite."""
    steps, values = series.steps, series.values
    if len(steps) > MAX_POINTS:
        chosen: set[int] = set()
        for stretch in np.array_split(np.arange(len(steps)), MAX_POINTS // 2):
            here = values[stretch]
            if not np.isfinite(here).all():
                chosen.add(int(stretch[np.flatnonzero(~np.isfinite(here))[0]]))
            if np.isfinite(here).any():
                chosen |= {int(stretch[np.nanargmin(np.where(np.isfinite(here), here, np.nan))])}
                chosen |= {int(stretch[np.nanargmax(np.where(np.isfinite(here), here, np.nan))])}
        kept = np.array(sorted(chosen))
        steps, values = steps[kept], values[kept]
    said = [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
    return {"steps": steps.tolist(), "values": said}
