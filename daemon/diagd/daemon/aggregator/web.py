"""HTTP out: /metrics for Prometheus and JSON for people's tools, on a thread of its own."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from diagd.daemon.aggregator.hub import Hub, UnknownJob
from diagd.daemon.aggregator.ledger import ledger_document
from diagd.daemon.aggregator.metrics import CONTENT_TYPE, render
from diagd.daemon.aggregator.service import address_error
from diagd.daemon.aggregator.status import job_status, status, status_text

JSON_TYPE = "application/json; charset=utf-8"
READY_WITHIN_S = 5.0  # a loop that has not ticked for so long is stuck
SLOW_CLIENT_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    content_type: str
    body: str


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
        }.get(path.rstrip("/"))
        if page is None:
            return _json(404, {"error": f"there is no {path} here"})
        try:
            return page(query.get("job_id", ""))
        except UnknownJob as exc:
            return _json(404, {"error": str(exc)})

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
            found = ledger_document(self._hub.find(job_id).state)
        return _json(200, found)

    def _jobs(self, job_id: str) -> Answer:
        with self._hub.lock:
            return _json(200, {"jobs": [job_status(loop) for loop in self._hub.loops()]})


def _json(status: int, content: Any) -> Answer:
    return Answer(status, JSON_TYPE, json.dumps(content) + "\n")


def _handler(get: Callable[[str, Mapping[str, str]], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "diagd"
        sys_version = ""
        protocol_version = "HTTP/1.1"
        timeout: ClassVar[float] = SLOW_CLIENT_S

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            answer = get(parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()})
            body = answer.body.encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass  # a line for each scrape is noise

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True  # a port in TIME_WAIT is free; one that is listened on is still refused

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away


class WebServer:
    """Serves a hub over HTTP."""

    def __init__(self, hub: Hub, host: str, port: int) -> None:
        self._hub = hub
        self._host, self._port = host, port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{self._host}:{self._server.server_address[1] if self._server else self._port}"

    def start(self) -> str:
        """Listen; the address.

        Raises:
            DiagdError: The address cannot be had.
        """
        try:
            self._server = _Server((self._host, self._port), _handler(Pages(self._hub).get))
        except OSError as exc:
            raise address_error("HTTP", self._host, self._port, exc.strerror or str(exc)) from exc
        # Every half second it looks whether it is to stop; more often costs more than it serves.
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.5}, name="diagd-http", daemon=True
        )
        self._thread.start()
        return self.address

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(timeout=5.0)
