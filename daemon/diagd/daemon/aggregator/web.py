"""HTTP out: /metrics for Prometheus and JSON for people's tools, on a thread of its own."""

import json
from collections.abc import Mapping
from typing import Any

from diagd.daemon.aggregator.hub import Hub, UnknownJob
from diagd.daemon.aggregator.ledger import gathered, gathered_at_start, ledger_document, save_document
from diagd.daemon.aggregator.metrics import render
from diagd.daemon.aggregator.service import address_error
from diagd.daemon.aggregator.status import job_status, status, status_text
from diagd.daemon.exposition import CONTENT_TYPE
from diagd.daemon.serving import Answer, HttpServer

JSON_TYPE = "application/json; charset=utf-8"
READY_WITHIN_S = 5.0  # a loop that has not ticked for so long is stuck


class Pages:
    """What is served under each path."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def get(self, path: str, query: Mapping[str, str]) -> Answer:
        """The answer to one question."""
        page = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/api/v1/report": self._report,
            "/api/v1/incidents": self._incidents,
            "/api/v1/status": self._status,
            "/api/v1/jobs": self._jobs,
            "/api/v1/ledger": self._ledger,
            "/api/v1/ledger/start": self._ledger_at_start,
            "/api/v1/ledger/save": self._save,
        }.get(path.rstrip("/"))
        if page is None:
            return _json(404, {"error": f"there is no {path} here"})
        try:
            return page(query.get("job_id", ""))
        except UnknownJob as exc:
            return _json(404, {"error": str(exc)})

    def post(self, path: str, query: Mapping[str, str]) -> Answer:
        """The answer to somebody who wants something done: a ledger of one step."""
        if path.rstrip("/") != "/api/v1/ledger/save":
            return _json(404, {"error": f"there is no {path} here"})
        step = query.get("step")
        try:
            wanted = int(step) if step is not None else None
            with self._hub.lock:
                loop = self._hub.find(query.get("job_id", ""))
                loop.saves.want(wanted)
                return _json(200, save_document(loop.state, loop.saves))
        except UnknownJob as exc:
            return _json(404, {"error": str(exc)})
        except ValueError:
            return _json(400, {"error": f"{step!r} is no step"})

    def _metrics(self, job_id: str) -> Answer:
        with self._hub.lock:
            return Answer(200, CONTENT_TYPE, render(self._hub))

    def _healthz(self, job_id: str) -> Answer:
        return Answer(200, "text/plain; charset=utf-8", "ok\n")

    def _readyz(self, job_id: str) -> Answer:
        behind_s = self._hub.clock() - self._hub.last_tick_s
        if behind_s > READY_WITHIN_S:
            return Answer(503, "text/plain; charset=utf-8", f"no judgement for {behind_s:.0f} s\n")
        return Answer(200, "text/plain; charset=utf-8", "ok\n")

    def _report(self, job_id: str) -> Answer:
        with self._hub.lock:
            report = self._hub.find(job_id).report()
        return _json(200, report)

    def _incidents(self, job_id: str) -> Answer:
        with self._hub.lock:
            report = self._hub.find(job_id).report()
        return _json(200, {"schema": report["schema"], "incidents": report["incidents"]})

    def _status(self, job_id: str) -> Answer:
        with self._hub.lock:
            found = status(self._hub.find(job_id))
        return Answer(200, JSON_TYPE, status_text(found) + "\n")

    def _ledger(self, job_id: str) -> Answer:
        with self._hub.lock:
            loop = self._hub.find(job_id)
            found = gathered(loop.state, loop.saves)
        return _json(200, ledger_document(found))

    def _ledger_at_start(self, job_id: str) -> Answer:
        with self._hub.lock:
            found = gathered_at_start(self._hub.find(job_id).state)
        return _json(200, ledger_document(found))

    def _save(self, job_id: str) -> Answer:
        with self._hub.lock:
            loop = self._hub.find(job_id)
            return _json(200, save_document(loop.state, loop.saves))

    def _jobs(self, job_id: str) -> Answer:
        with self._hub.lock:
            return _json(200, {"jobs": [job_status(loop) for loop in self._hub.loops()]})


def _json(status: int, content: Any) -> Answer:
    return Answer(status, JSON_TYPE, json.dumps(content) + "\n")


class WebServer(HttpServer):
    """Serves a hub over HTTP."""

    def __init__(self, hub: Hub, host: str, port: int) -> None:
        pages = Pages(hub)
        super().__init__(pages.get, host, port, address_error, pages.post)
