"""A job at a glance: what `diagd status` and `diagd top` show, and `/api/v1/status` and GetStatus answer."""

import json
from typing import Any

from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.reporting import job_notes, shown_status
from diagd.daemon.detectors.lateness import lateness
from diagd.daemon.detectors.position import waits_of
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Group, Operation

SCHEMA = "diagd.status/1"
LATE_OVER_S = 10.0  # the stretch of which it is told how late ranks are


def job_status(loop: JobLoop) -> dict[str, Any]:
    """A job without its ranks."""
    state = loop.state
    return {
        "id": state.job_id,
        "command": list(state.command),
        "started_at": state.started_s,
        "ended_at": state.ended_s,
        "exit_code": state.exit_code,
        "attempt": state.attempt,
        "world_size": state.world_size or None,
        "nodes": list(loop.nodes),
    }


def status(loop: JobLoop) -> dict[str, Any]:
    """The job with its ranks, groups and incidents, in the form `diagd.status/1`, which the README describes."""
    late_s = _late_s(loop.state)
    return {
        "schema": SCHEMA,
        "source": "watch",
        "now": loop.state.now_s,
        "job": job_status(loop),
        "ranks": [*(_rank(loop, rank, late_s.get(rank)) for rank in loop.state.ranks()), *_not_joined(loop.state)],
        "groups": _groups(loop),
        "incidents": [incident.as_json() for incident in loop.book.incidents],
        "notes": job_notes(loop.state),
    }


def status_text(found: dict[str, Any]) -> str:
    """The status as it is served."""
    return json.dumps(found, separators=(",", ":"))


def _late_s(state: JobState) -> dict[int, float]:
    """By how much each rank comes later than the first to the operations of a group, on average; its worst group."""
    found: dict[int, float] = {}
    for late in lateness(state, state.now_s - LATE_OVER_S):
        for rank, cost_s in late.cost_s.items():
            found[rank] = max(found.get(rank, 0.0), cost_s / late.meetings)
    return found


def _rank(loop: JobLoop, rank: int, late_s: float | None) -> dict[str, Any]:
    state, columns, detail = loop.state, loop.state.columns, loop.state.detail(rank)
    moved_s, interval_s = float(columns.program_moved_s[rank]), float(columns.step_interval_s[rank])
    step = int(columns.step[rank])
    return {
        "rank": rank,
        "node": detail.node,
        "host": detail.host,
        "pid": int(columns.pid[rank]),
        "state": shown_status(state, rank).name.lower(),
        "exit": str(detail.exit) if detail.exit else None,
        "step": step if step >= 0 else None,
        "step_seconds": round(interval_s, 4) if interval_s > 0 else None,
        "phase": state.phases[rank],
        "seconds_since_progress": round(state.now_s - moved_s, 1) if moved_s > 0 else None,
        "wait": _wait(loop, rank),
        "late_seconds": None if late_s is None else round(late_s, 5),
        "last_seen_at": float(columns.seen_s[rank]),
        "rss_bytes": int(columns.rss_bytes[rank]),
    }


def _not_joined(state: JobState) -> list[dict[str, Any]]:
    """Processes that the ranks wait for: they were to become one, and have not come to that."""
    return [
        {
            "rank": rank, "node": detail.node, "host": detail.host, "pid": detail.pid,
            "state": "running" if detail.exit is None else "killed" if detail.exit.signal else "exited",
            "exit": str(detail.exit) if detail.exit is not None else None, "step": None, "step_seconds": None,
            "phase": "init", "seconds_since_progress": None, "wait": None, "late_seconds": None,
            "last_seen_at": state.now_s, "rss_bytes": 0,
        }
        for rank, detail in sorted(state.candidates.items())
        if state.details and rank not in state.details and rank < state.world_size
    ]  # fmt: skip


def _wait(loop: JobLoop, rank: int) -> dict[str, Any] | None:
    since_s = float(loop.state.columns.wait_s[rank])
    if loop.state.status(rank).gone:
        return None
    if since_s > 0:
        return _in_wait(loop, next((op for op in loop.state.detail(rank).operations if op.blocking), None), since_s)
    # What C++ has issued no probe sees; the flight recorder does, where it was asked.
    held = next((wait for wait in waits_of(loop.state, rank) if not wait.failed), None)
    return _in_wait(loop, held.op, held.since_s) if held is not None else None


def _in_wait(loop: JobLoop, op: Operation | None, since_s: float) -> dict[str, Any]:
    return {
        "op": op.name if op else None,
        "group": op.group if op else None,
        "seconds": round(max(loop.state.now_s - since_s, 0.0), 1),
    }


def _groups(loop: JobLoop) -> list[dict[str, Any]]:
    """Each process group once, with the least and the most operations that a member has issued to it.

    A group's members are not compared one by one: of 1,024 ranks each knows all 1,024 of the default group.
    """
    found: dict[tuple[str, int, int, int], tuple[Group, list[int]]] = {}
    for _, detail in sorted(loop.state.details.items()):
        for group in detail.groups:
            if group.ranks:
                key = (group.name, group.ranks[0], group.ranks[-1], len(group.ranks))
                found.setdefault(key, (group, []))[1].append(group.enqueued)
    return [_group(group, [count for count in counts if count >= 0]) for group, counts in found.values()]


def _group(group: Group, issued: list[int]) -> dict[str, Any]:
    return {
        "name": group.name,
        "description": group.description,
        "ranks": list(group.ranks),
        "issued_least": min(issued, default=None),
        "issued_most": max(issued, default=None),
    }
