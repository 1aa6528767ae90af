"""A job as report.json has it, and the file itself."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from diagd.daemon.aggregator.plotting import plots_of
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Status

SCHEMA = "diagd.report/1"
NAME = "report.json"
PHASES = frozenset({"init", "data", "forward", "backward", "optimizer", "collective", "checkpoint", "eval", "other"})
# Looks come every half second; a rank of which nothing came for so long is out of sight.
LOST_AFTER_S = 15.0


def shown_status(state: JobState, rank: int) -> Status:
    """The rank's last known status; LOST where its agent has fallen silent while the job goes on."""
    status = state.status(rank)
    silent_s = state.now_s - float(state.columns.seen_s[rank])
    if not status.gone and state.ended_s is None and silent_s > LOST_AFTER_S and not state.from_dumps:
        return Status.LOST
    return status


def job_report(state: JobState, incidents: Sequence[Incident]) -> dict[str, Any]:
    """The report, after report.schema.json."""
    ranks = state.ranks()
    return {
        "schema": SCHEMA,
        "job": {
            "id": state.job_id,
            "world_size": state.world_size or None,
            "started_at": state.started_s,
            "ended_at": state.ended_s,
            "exit_code": state.exit_code,
            "command": list(state.command),
            "attempt": state.attempt,
        },
        "ranks": sorted(
            [*(_rank(state, rank) for rank in ranks), *_never_joined(state)], key=lambda entry: int(entry["rank"])
        ),
        "incidents": [incident.as_json() for incident in sorted(incidents, key=lambda i: i.order)],
        "notes": job_notes(state),
        "plots": plots_of(state, incidents),
    }


def _rank(state: JobState, rank: int) -> dict[str, Any]:
    detail, columns = state.detail(rank), state.columns
    step = int(columns.step[rank])
    phase = state.phases[rank]
    return {
        "rank": rank,
        "host": detail.host,
        "pid": int(columns.pid[rank]),
        "state": shown_status(state, rank).name.lower(),
        "step": step if step >= 0 else None,
        "phase": phase if phase in PHASES else "other",
        "exit": str(detail.exit) if detail.exit else None,
        "last_seen_at": float(columns.seen_s[rank]),
        "node": detail.node,
        "attempt": detail.attempt,
    }


def _never_joined(state: JobState) -> list[dict[str, Any]]:
    """Processes that were to become a rank and are none: some ended before, of others the ranks wait."""
    return [
        {
            "rank": rank,
            "host": detail.host,
            "pid": detail.pid,
            "state": "running" if detail.exit is None else "killed" if detail.exit.signal else "exited",
            "step": None,
            "phase": "init",
            "exit": str(detail.exit) if detail.exit is not None else None,
            "last_seen_at": detail.exit.at_s if detail.exit is not None else state.now_s,
            "node": detail.node,
            "attempt": detail.attempt,
        }
        for rank, detail in state.candidates.items()
        if rank not in state.details and (detail.exit is not None or (state.details and rank < state.world_size))
    ]


def job_notes(state: JobState) -> list[str]:
    """What is not watched: each note once, with the ranks that it is true of where those are not all."""
    ranks_by_note: dict[str, list[int]] = {}
    for rank, detail in sorted(state.details.items()):
        for note in (*detail.notes, *_left_out(state, rank)):
            ranks_by_note.setdefault(note, []).append(rank)
    everyone = len(state.details)
    return [
        note if len(ranks) == everyone else f"{note} (rank {', '.join(map(str, ranks))})"
        for note, ranks in ranks_by_note.items()
    ]


def _left_out(state: JobState, rank: int) -> Iterator[str]:
    """Tensors that have no place in the rank's ledger; alone, there is nothing that it is compared with."""
    count = state.tensors.left_out.get(rank, 0)
    if count and state.world_size > 1:
        what = f"{count} tensors are" if count > 1 else "1 tensor is"
        yield f"{what} not compared with other ranks': no room in the ledger, or memory that is not to be read"


def write_whole(path: Path, text: str) -> None:
    """Put the text into the file, so that a reader sees the old or the new and never half of one.

    Raises:
        OSError: The folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Write report.json.

    Raises:
        OSError: The folder cannot be written.
    """
    write_whole(folder / NAME, json.dumps(report, indent=1) + "\n")
