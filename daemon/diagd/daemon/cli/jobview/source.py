"""Read a running job's status, in the form diagd.status/1: from its watch, its aggregator elsewhere, or the boxes."""

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagd.daemon.agent.discovery import Box, Job

SCHEMA = "diagd.status/1"
_ASK_S = 3.0
_READ_S = 1.0  # a dump that reads a rank's stack stops it for so long at most, mostly
_NO_JOB: dict[str, Any] = {
    "id": None, "command": [], "started_at": None, "ended_at": None, "exit_code": None, "attempt": 0,
    "world_size": None, "nodes": [],
}  # fmt: skip
_NO_RANK: dict[str, Any] = {
    "rank": None, "node": "", "host": "", "pid": None, "state": "running", "exit": None, "step": None,
    "step_seconds": None, "phase": "other", "seconds_since_progress": None, "wait": None, "late_seconds": None,
    "last_seen_at": None, "rss_bytes": None,
}  # fmt: skip


def read_status(job: "Job") -> dict[str, Any]:
    """The job as it is now; straight from the ranks' boxes where nothing that judges it answers."""
    return whole(_from_watch(job.info) or _from_aggregator(job) or _from_boxes(job))


def whole(found: Mapping[str, Any]) -> dict[str, Any]:
    """With every key of the form, null or empty where nothing is known, as of a watch of another version of diagd."""
    return {
        "schema": SCHEMA,
        "source": found.get("source", "watch"),
        "now": found.get("now"),
        "job": {**_NO_JOB, **found.get("job", {})},
        "ranks": [{**_NO_RANK, **rank} for rank in found["ranks"]],
        "groups": found.get("groups", []),
        "incidents": found.get("incidents", []),
        "notes": found.get("notes", []),
    }


def _from_watch(info: Mapping[str, Any]) -> dict[str, Any] | None:
    from diagd.daemon.cli.jobs import fetch

    address = info.get("http")
    if not isinstance(address, str):
        return None
    try:
        found = fetch(address, "/api/v1/status", _ASK_S)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("ranks"), list) else None


def _from_aggregator(job: "Job") -> dict[str, Any] | None:
    """Of a job whose nodes report to an aggregator elsewhere: it alone knows the ranks of all of them."""
    address = job.info.get("grpc")
    if job.info.get("http") or not isinstance(address, str):
        return None
    import grpc

    from diagd.proto.v1.job_pb2 import GetStatusRequest
    from diagd.proto.v1.job_pb2_grpc import JobServiceStub

    with grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 64 << 20)]) as channel:
        try:
            request = GetStatusRequest(job_id=str(job.info.get("job_id") or job.job))
            found = json.loads(JobServiceStub(channel).GetStatus(request, timeout=_ASK_S).status)
        except (grpc.RpcError, ValueError):  # it cannot be reached, or is older than the question
            return None
    return {**found, "source": "aggregator"} if isinstance(found.get("ranks"), list) else None


def _from_boxes(job: "Job") -> dict[str, Any]:
    from diagd.daemon.agent.discovery import BoxFolder
    from diagd.daemon.agent.procfs import Procfs

    proc = Procfs()
    folder = BoxFolder(job.run_dir, proc)
    try:
        boxes = [box for _, box in sorted(folder.by_rank().items()) if box.is_rank]
        ranks = [_of_box(box, proc) for box in boxes]
        attempt = max((box.attempt for box in boxes), default=0)
    finally:
        folder.close()
    info, node = job.info, os.uname().nodename
    return {
        "source": "boxes",
        "now": time.time(),
        "job": {
            "id": info.get("job_id") or job.job,
            "command": [str(word) for word in info.get("command") or []],
            "started_at": info.get("started_s"),
            "exit_code": info.get("exit_code"),
            "attempt": attempt,
            "nodes": [node],
        },
        "ranks": [{**rank, "node": node} for rank in ranks],
    }


def _of_box(box: "Box", proc: Any) -> dict[str, Any]:
    from diagd.daemon.agent.readers import undisturbed_stat
    from diagd.probes.box.layout import Live, Phase

    reader, now_s = box.reader, time.time()
    moved_ns = max(reader.live(Live.STEP_NS), reader.live(Live.PHASE_NS))
    beat_ns, step = reader.live(Live.HEARTBEAT_NS), reader.live(Live.STEP)
    stat = undisturbed_stat(proc, box.pid, _READ_S)
    return {
        "rank": box.rank,
        "host": str(box.identity.get("host", "")),
        "pid": box.pid,
        "state": "exited" if stat is None or stat.state in "ZX" else "stopped" if stat.state in "Tt" else "running",
        "step": step if step >= 0 else None,
        "phase": Phase(reader.live(Live.PHASE)).name.lower(),
        "seconds_since_progress": round(now_s - reader.wall_s(moved_ns), 1) if moved_ns else None,
        "last_seen_at": reader.wall_s(beat_ns) if beat_ns else None,
        "rss_bytes": stat.rss_bytes if stat is not None else None,
    }
