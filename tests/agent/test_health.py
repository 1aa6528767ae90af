"""/metrics of an agent that runs by itself."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.aggregator.fakes import FakeJudge, FakeObserver, wait_for

from diagd.daemon.agent.health import FAMILIES
from diagd.daemon.agent.main import NodeAgent, main
from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.service import GrpcServer
from diagd.daemon.config.settings import AgentConfig


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class BrokenObserver(FakeObserver):
    """Fails at its third look."""

    def look(self, now_s: float) -> list:  # type: ignore[type-arg]
        found = super().look(now_s)
        if self.looks == 3:
            raise RuntimeError("broken")
        return found


class Node:
    """An agent that watches one job, and where it serves what it says of itself."""

    def __init__(self, run_dir: Path, target: str, **settings: float) -> None:
        self.port = free_port()
        config = AgentConfig(http_port=self.port, look_s=0.02, suspicious_look_s=0.02, **settings)  # type: ignore[arg-type]
        self.agent = NodeAgent(target, "n1", config, lambda path, node: BrokenObserver(2))
        assert self.agent.web is not None
        self.agent.web.start()
        self.agent.update([run_dir])

    def text(self) -> str:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return str(answer.read().decode())

    def values(self) -> dict[str, float]:
        families = text_string_to_metric_families(self.text())
        return {sample.name: sample.value for family in families for sample in family.samples}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "night"
    folder.mkdir()
    return folder


@pytest.fixture
def lonely(run_dir: Path) -> Iterator[Node]:
    node = Node(run_dir, f"127.0.0.1:{free_port()}", buffer_windows=5)
    yield node
    _, job = node.agent.jobs.popitem()  # nobody is there to say goodbye to
    job.loop.stop()
    job.stream.close()
    node.agent.close()


def test_what_waits_for_an_aggregator_and_what_is_lost_is_counted(lonely: Node) -> None:
    wait_for(lambda: lonely.values()["diagd_agent_windows_dropped_total"] > 2, 60)
    found = lonely.values()
    assert (found["diagd_agent_jobs"], found["diagd_agent_ranks"], found["diagd_agent_connected"]) == (1, 2, 0)
    assert (found["diagd_agent_queue_windows"], found["diagd_agent_windows_acknowledged_total"]) == (5, 0)
    assert found["diagd_agent_windows_total"] == 5 + found["diagd_agent_windows_dropped_total"]
    assert found["diagd_agent_queue_bytes"] > 0
    assert found["diagd_agent_look_failures_total"] == 1


def test_what_the_aggregator_has_taken_is_no_longer_in_line(run_dir: Path) -> None:
    judge = FakeJudge()
    server = GrpcServer(Hub(time.time, lambda job_id: JobLoop(job_id, judge.make())), "127.0.0.1", 0)
    node = Node(run_dir, server.start())
    try:
        wait_for(lambda: node.values()["diagd_agent_windows_acknowledged_total"] > 2, 60)
        found = node.values()
        assert (found["diagd_agent_connected"], found["diagd_agent_connections_total"]) == (1, 1)
        assert found["diagd_agent_windows_dropped_total"] == 0
        assert abs(found["diagd_agent_last_look_timestamp_seconds"] - time.time()) < 60
        assert 'diagd_agent_ranks{job_id="night",node="n1"} 2' in node.text()
    finally:
        node.agent.close()
        server.stop()


def test_prometheus_finds_nothing_to_object_to(lonely: Node) -> None:
    wait_for(lambda: "last_look" in lonely.text(), 60)
    families = list(text_string_to_metric_families(lonely.text()))
    assert len(families) == len(FAMILIES)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind, _ in FAMILIES)


def test_there_is_nothing_else_to_be_had(lonely: Node) -> None:
    with urlopen(f"http://127.0.0.1:{lonely.port}/healthz") as answer:
        assert answer.read() == b"ok\n"
    with pytest.raises(HTTPError) as refused:
        urlopen(f"http://127.0.0.1:{lonely.port}/api/v1/report")
    assert refused.value.code == 404
    refused.value.close()


def test_by_default_an_agent_listens_nowhere() -> None:
    assert NodeAgent("127.0.0.1:1", "n1", AgentConfig(), lambda path, node: FakeObserver()).web is None


def test_a_port_that_is_taken_is_said_with_a_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert main(["--aggregator", "127.0.0.1:1", "--root", str(tmp_path), "--http-port", port]) == 85
    assert "--http-port" in capsys.readouterr().err
