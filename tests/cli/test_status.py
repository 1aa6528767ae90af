"""`diagd status --json`: the same form wherever it comes from."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.aggregator.fakes import FakeJudge, incident, rank_facts
from tests.cli.statuses import check_status

from diagd.daemon.agent.discovery import Job
from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.service import GrpcServer
from diagd.daemon.aggregator.web import WebServer
from diagd.daemon.cli.jobview.source import read_status, whole
from diagd.daemon.state.model import Detail, Group, Status
from diagd.daemon.state.tensors import LedgerNews
from diagd.probes.box import layout
from diagd.probes.box.layout import Live, Phase
from diagd.probes.box.writer import BoxWriter


@pytest.fixture
def hub() -> Hub:
    """A job of two nodes, of which one rank was killed and another has told nothing but its number."""
    loop = JobLoop("demo", FakeJudge(findings=[incident()]).make())
    world, pair = Group("0", (0, 1, 2), "default_pg", 8, 7), Group("3", (0, 1), "tp")
    details = [Detail(0, host="h0", node="n0", pid=1000, groups=(world, pair)),
               Detail(1, host="h1", node="n1", groups=(Group("0", (0, 1, 2), "default_pg", 5), pair))]  # fmt: skip
    facts = [rank_facts(0), rank_facts(1, status=Status.KILLED, step=-1), rank_facts(2, rss_bytes=0, phase="later")]
    loop.state.apply(facts, details, time.time())
    hub = Hub(time.time)
    hub.add(loop)
    hub.tick()
    return hub


@pytest.fixture
def http(hub: Hub) -> Iterator[str]:
    server = WebServer(hub, "127.0.0.1", 0)
    yield server.start()
    server.stop()


def test_of_a_watch(http: str, tmp_path: Path) -> None:
    found = read_status(Job("demo", tmp_path, {"http": http}))
    check_status(found)
    assert (found["source"], [r["state"] for r in found["ranks"]]) == ("watch", ["running", "killed", "running"])
    assert [(g["name"], g["issued_least"], g["issued_most"]) for g in found["groups"]] == [
        ("0", 5, 8),
        ("3", None, None),
    ]


def test_a_proxy_does_not_stand_between_this_machine_and_itself(
    http: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert read_status(Job("demo", tmp_path, {"http": http}))["source"] == "watch"


def test_of_an_aggregator_elsewhere(hub: Hub, tmp_path: Path) -> None:
    server = GrpcServer(hub, "127.0.0.1", 0)
    address = server.start()
    try:
        found = read_status(Job("demo", tmp_path, {"job_id": "demo", "grpc": address, "http": None}))
        other = read_status(Job("other", tmp_path, {"job_id": "other", "grpc": address}))
    finally:
        server.stop()
    check_status(found)
    assert (found["source"], len(found["ranks"])) == ("aggregator", 3)
    assert other["source"] == "boxes"


def write_box(run_dir: Path, rank: int) -> None:
    start = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    box = BoxWriter(run_dir / f"{os.getpid()}-{start}.box")
    box.set_text(layout.IDENTITY, {"rank": rank, "pid": os.getpid(), "attempt": 2, "host": "h"})
    box.live[Live.IS_RANK], box.live[Live.STEP], box.live[Live.PHASE] = 1, 7, Phase.BACKWARD
    box.live[Live.PHASE_NS] = time.monotonic_ns()


def test_of_the_boxes_where_no_watch_answers(tmp_path: Path) -> None:
    write_box(tmp_path, 4)
    found = read_status(Job("demo", tmp_path, {"http": "127.0.0.1:9", "command": ["x"], "started_s": 5.0}))
    check_status(found)
    (rank,) = found["ranks"]
    assert (found["source"], found["job"]["attempt"], found["job"]["started_at"]) == ("boxes", 2, 5.0)
    assert (rank["rank"], rank["step"], rank["phase"], rank["state"]) == (4, 7, "backward", "running")
    assert rank["rss_bytes"] > 1 << 20


def test_what_a_watch_of_another_version_leaves_out_is_null() -> None:
    older: dict[str, Any] = {
        "job": {"id": "demo", "command": [], "started_at": 1.0}, "ranks": [{"rank": 0, "pid": 5, "state": "running"}]
    }  # fmt: skip
    found = whole(older)
    check_status(found)
    assert (found["ranks"][0]["pid"], found["ranks"][0]["step_seconds"], found["groups"]) == (5, None, [])


def asked(http: str, tmp_path: Path, *options: str) -> str:
    """What the command prints."""
    run_dir = tmp_path / f"diagd-{os.getuid()}" / "demo"
    run_dir.mkdir(parents=True)
    run = {"job_id": "demo", "http": http, "supervisor_pid": os.getpid(), "exit_code": None}
    (run_dir / "run.json").write_text(json.dumps(run))
    done = subprocess.run(
        [sys.executable, "-m", "diagd.daemon.cli", "status", "--job", "demo", *options],
        env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


def test_the_command_prints_it_whole(http: str, tmp_path: Path) -> None:
    check_status(json.loads(asked(http, tmp_path, "--json")))


def test_what_is_not_watched_is_said(hub: Hub, http: str, tmp_path: Path) -> None:
    hub.find("demo").state.tensors.apply([LedgerNews(0, 1000, left_out=7)], 3)
    assert "not watched: 7 tensors are not compared with other ranks'" in asked(http, tmp_path)
