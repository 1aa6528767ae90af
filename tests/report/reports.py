"""Reports for the tests."""

from typing import Any


def incident(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": "i1",
        "kind": "hang.data_starved",
        "severity": "critical",
        "state": "open",
        "opened_at": 1_700_000_040.0,
        "step": 25,
        "ranks": [1],
        "waiting_ranks": [0, 2],
        "group": "default_pg",
        "op": {"name": "ALLREDUCE", "seq": 51},
        "names": [],
        "summary": "rank 1 waits for its data in _read (train.py:32); ranks 0,2 wait for it in ALLREDUCE #51",
        "locations": [
            {"rank": 1, "function": "_read", "file": "/job/train.py", "line": 32},
            {"rank": 1, "function": "__getitem__", "file": "/job/train.py", "line": 28},
        ],
        "causes": [
            {
                "cause": "reading a file does not return",
                "confidence": 0.9,
                "basis": "observation",
                "evidence": [
                    {"what": "the same stack in 4 looks", "rank": 1, "step": 25, "source": "stack"},
                    {"what": "it sleeps in openat", "rank": 1, "step": None, "source": "kernel"},
                ],
                "fix": {
                    "action": "Check the file server behind this path.",
                    "expected": "the step goes on",
                    "verify": "diagd status",
                    "if_not": "look at the sample itself",
                },
            }
        ],
        "peak_severity": "critical",
        "resolved_at": None,
        "attempt": 0,
        "fingerprint": "abc",
        "strikes": 0,
        "dump": "dumps/i1",
    }
    return {**made, **changes}


def report(*incidents: dict[str, Any], ranks: int = 3, **changes: Any) -> dict[str, Any]:
    job: dict[str, Any] = {
        "id": "job-1",
        "world_size": ranks or None,
        "started_at": 1_700_000_000.0,
        "ended_at": 1_700_000_060.0,
        "exit_code": 86 if incidents else 0,
        "command": ["torchrun", "train.py"],
    }
    rows = [
        {"rank": r, "host": "node", "pid": 100 + r, "state": "blocked", "step": 25, "phase": "data", "exit": None,
         "last_seen_at": 1_700_000_059.0}
        for r in range(ranks)
    ]  # fmt: skip
    return {"schema": "diagd.report/1", "job": job, "ranks": rows, "incidents": list(incidents), "notes": [], **changes}
