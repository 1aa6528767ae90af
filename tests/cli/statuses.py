"""Statuses of jobs, written by hand, and what every status must be like."""

import json
from pathlib import Path
from typing import Any

import jsonschema

CONTRACT = Path(__file__).parents[1] / "contract"
STATUS = json.loads((CONTRACT / "status.schema.json").read_text(encoding="utf-8"))
REPORT = json.loads((CONTRACT / "report.schema.json").read_text(encoding="utf-8"))
INCIDENT = {"$schema": REPORT["$schema"], "$defs": REPORT["$defs"], "$ref": "#/$defs/incident"}
NOW_S = 1_000_000.0


def check_status(found: dict[str, Any]) -> None:
    """Fail where it is not of the form diagd.status/1."""
    jsonschema.validate(found, STATUS)
    for incident in found["incidents"]:
        jsonschema.validate(incident, INCIDENT)


def rank(number: int, **changes: Any) -> dict[str, Any]:
    """A rank that trains."""
    return {
        "rank": number, "node": f"n{number // 8}", "host": f"n{number // 8}", "pid": 1000 + number, "state": "running",
        "exit": None, "step": 40, "step_seconds": 0.25, "phase": "forward", "seconds_since_progress": 0.2, "wait": None,
        "late_seconds": None, "last_seen_at": NOW_S, "rss_bytes": 1 << 30, **changes,
    }  # fmt: skip


def status(*ranks: dict[str, Any], incidents: tuple[dict[str, Any], ...] = (), **job: Any) -> dict[str, Any]:
    """A job of these ranks, with one group of them all."""
    numbers = [r["rank"] for r in ranks]
    return {
        "schema": "diagd.status/1",
        "source": "watch",
        "now": NOW_S,
        "job": {
            "id": "demo", "command": ["torchrun", "train.py"], "started_at": NOW_S - 25, "ended_at": None,
            "exit_code": None, "attempt": 0, "world_size": len(ranks) or None,
            "nodes": sorted({r["node"] for r in ranks}), **job,
        },
        "ranks": list(ranks),
        "groups": [{"name": "0", "description": "default_pg", "ranks": numbers, "issued_least": 39, "issued_most": 40}],
        "incidents": list(incidents),
        "notes": [],
    }  # fmt: skip
