"""Dumps as ranks' flight recorders write them, made up entry by entry."""

import json
import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diagd.daemon.analyze.sources import source_of
from diagd.daemon.analyze.verdict import Analysis, analyze

BEGUN_S = 1_700_000_000.0
DUMPED_S = BEGUN_S + 600.0  # as the watchdog does, after its timeout

Entry = dict[str, Any]


def call(
    name: str, seq: int, sizes: Sequence[Sequence[int]] = ((4, 4),), out: Sequence[Sequence[int]] | None = None,
    state: str = "completed", group: str = "0", **more: Any,
) -> Entry:  # fmt: skip
    """One entry of torch 2.13's, of a collective or (`is_p2p`) of a send or recv."""
    p2p = name.startswith(("send", "recv")) or bool(more.get("is_p2p"))
    given = sizes if out is None else out
    done = state == "completed"
    return {
        "record_id": 0, "pg_id": 0, "process_group": (group, "default_pg" if group == "0" else "sub_pg"),
        "collective_seq_id": 0 if p2p else seq, "p2p_seq_id": seq if p2p else 0, "op_id": seq,
        "profiling_name": f"nccl:{name}", "time_created_ns": int(BEGUN_S * 1e9),
        "input_sizes": [list(s) for s in sizes], "input_dtypes": ["Float"] * len(sizes),
        "output_sizes": [list(s) for s in given],
        "output_dtypes": ["Float"] * len(given), "state": state, "time_discovered_started_ns": None,
        "time_discovered_completed_ns": int(BEGUN_S * 1e9) + 1000 if done else None, "retired": done,
        "timeout_ms": 600000, "is_p2p": p2p, "frames": [], **more,
    }  # fmt: skip


def closing(name: str, seq: int, state: str = "completed", **more: Any) -> Entry:
    """The entry that ends a batch."""
    return call(name, seq, (), (), state, **more)


def dump(entries: Sequence[Entry], groups: Mapping[str, Sequence[int]], version: str = "2.10", **more: Any) -> Entry:
    """One rank's dump; `record_id` counts from `first`."""
    first = more.pop("first", 0)
    config = {
        n: {"name": n, "desc": "default_pg" if n == "0" else "sub_pg", "ranks": str(list(r))} for n, r in groups.items()
    }
    numbered = [{**entry, "record_id": first + place} for place, entry in enumerate(entries)]
    return {"version": version, "pg_config": config, "pg_status": {}, "entries": numbered, **more}


def as_gloo(said: Entry) -> Entry:
    """The same dump from gloo: no members, no states."""
    entries = [
        {**e, "profiling_name": e["profiling_name"].replace("nccl:", "gloo:"), "state": "scheduled",
         "time_discovered_completed_ns": None}
        for e in said["entries"]
    ]  # fmt: skip
    return {**said, "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}}, "entries": entries}


def save(folder: Path, dumps: Mapping[int, Entry], form: str = "pickle", taken_s: float = DUMPED_S) -> Path:
    """A file for each rank, written at a time."""
    folder.mkdir(exist_ok=True)
    for rank, said in dumps.items():
        path = folder / (f"trace_{rank}" if form == "pickle" else f"fr_trace_{rank}.json")
        path.write_bytes(pickle.dumps(said, 2) if form == "pickle" else json.dumps(said).encode())
        os.utime(path, (taken_s, taken_s))
    return folder


def world(*entries: Sequence[Entry], groups: Mapping[str, Sequence[int]] | None = None) -> dict[int, Entry]:
    """The dumps of a job, in the ranks' order; its default group has them all."""
    everyone = {"0": range(len(entries)), **(groups or {})}
    return {
        rank: dump(found, {name: ranks for name, ranks in everyone.items() if rank in ranks})
        for rank, found in enumerate(entries)
    }


def judged(path: Path, **options: Any) -> Analysis:
    """The analysis of what lies there."""
    (found,) = analyze(source_of([path]), hang_after_s=options.pop("hang_after_s", None), **options)
    return found


def faults(found: Analysis) -> list[tuple[str, list[int]]]:
    """(kind, culprits) of each incident."""
    return [(incident["kind"], incident["ranks"]) for incident in found.report["incidents"]]
