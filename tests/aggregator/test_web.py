"""HTTP: what people's tools ask, and what they get where there is nothing."""

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.aggregator.fakes import FakeJudge, incident

from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.web import WebServer
from diagd.daemon.errors import DiagdError
from diagd.daemon.state.model import Detail, Facts, Operation
from diagd.daemon.state.tensors import LedgerNews, TensorInfo


@pytest.fixture
def hub() -> Hub:
    made = Hub(time.time)
    loop = JobLoop("job", FakeJudge(findings=[incident()]).make())
    made.add(loop)
    now_s = time.time()
    operation = Operation("BARRIER", "dp", 4, blocking=True, entered_s=now_s - 5)
    loop.state.apply([Facts(0, pid=5, wait_s=now_s - 5, step=2)], [Detail(0, pid=5, operations=(operation,))], now_s)
    made.tick()
    return made


@pytest.fixture
def address(hub: Hub) -> Iterator[str]:
    server = WebServer(hub, "127.0.0.1", 0)
    yield server.start()
    server.stop()


def get(address: str, path: str) -> Any:
    with urlopen(f"http://{address}{path}", timeout=5) as answer:
        return json.load(answer)


def test_status_says_what_each_rank_waits_in(address: str) -> None:
    status = get(address, "/api/v1/status")
    (rank,) = status["ranks"]
    assert (rank["wait"]["op"], rank["wait"]["group"], rank["step"]) == ("BARRIER", "dp", 2)
    assert 5 <= rank["wait"]["seconds"] < 10
    assert status["job"]["id"] == "job"
    assert [i["id"] for i in status["incidents"]] == ["001-abc"]


def test_reports_and_incidents_are_served(address: str) -> None:
    assert get(address, "/api/v1/report")["incidents"][0]["kind"] == "hang.rank_blocked"
    assert get(address, "/api/v1/incidents?job_id=job")["incidents"][0]["ranks"] == [1]
    assert [job["id"] for job in get(address, "/api/v1/jobs")["jobs"]] == ["job"]


def test_the_ledger_tells_by_step_which_ranks_hold_what(hub: Hub, address: str) -> None:
    weight = TensorInfo("Net.w", shape=(2, 3), placement="ddp", peers=(0, 1))
    gradient = TensorInfo("Net.w", "gradient", peers=(0, 1))
    told = [LedgerNews(rank, rank, 0, (weight, gradient), (0, 0, 1), (0, 5, 5), (-1, rank, 9)) for rank in (0, 1)]
    hub.find("job").state.tensors.apply(told, 2)
    document = get(address, "/api/v1/ledger")
    assert document["schema"] == "diagd.ledger/2"
    (one,) = document["tensors"]
    assert (one["name"], one["kind"], one["shape"], one["placement"]) == ("Net.w", "parameter", [2, 3], "ddp")
    assert one["digests"] == {"0": {"f" * 16: "0,1"}, "5": {"0" * 16: "0", "0" * 15 + "1": "1"}}


def test_a_ledger_of_one_step_is_wanted_with_post_alone(hub: Hub, address: str) -> None:
    def post(path: str) -> Any:
        with urlopen(Request(f"http://{address}{path}", method="POST"), timeout=5) as answer:
            return json.load(answer)

    assert get(address, "/api/v1/ledger/save")["phase"] == "none"
    assert post("/api/v1/ledger/save?step=7&job_id=job")["number"] == 1
    told = get(address, "/api/v1/ledger/save")
    assert (told["number"], told["phase"], told["step"], told["at"]) == (1, "wanted", None, None)
    assert hub.find("job").saves.now.wanted_step == 7
    for path, status in (
        ("/api/v1/ledger", 404),
        ("/api/v1/ledger/save?step=x", 400),
        ("/api/v1/ledger/save?job_id=y", 404),
    ):
        with pytest.raises(HTTPError) as error:
            post(path)
        assert error.value.code == status


def test_metrics_are_text(address: str) -> None:
    with urlopen(f"http://{address}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert b'diagd_incidents_open{job_id="job",kind="hang.rank_blocked",severity="critical"} 1' in answer.read()


@pytest.mark.parametrize("path", ["/nothing", "/api/v1/report?job_id=other"])
def test_what_is_not_there_is_said_in_json(address: str, path: str) -> None:
    with pytest.raises(HTTPError) as missing:
        get(address, path)
    assert missing.value.code == 404
    assert "error" in json.load(missing.value)


def test_a_loop_that_stands_still_is_not_ready(address: str, hub: Hub) -> None:
    with urlopen(f"http://{address}/readyz", timeout=5) as answer:
        assert answer.status == 200
    hub.last_tick_s -= 60
    with pytest.raises(HTTPError) as stuck:
        urlopen(f"http://{address}/readyz", timeout=5)
    assert stuck.value.code == 503
    stuck.value.close()
    with urlopen(f"http://{address}/healthz", timeout=5) as answer:
        assert answer.status == 200


def test_an_address_in_use_is_an_error_that_says_what_to_do(address: str, hub: Hub) -> None:
    port = int(address.rpartition(":")[2])
    with pytest.raises(DiagdError) as refused:
        WebServer(hub, "127.0.0.1", port).start()
    assert "DIAGD_AGGREGATOR_HTTP_PORT" in refused.value.help
