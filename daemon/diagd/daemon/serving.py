"""A small HTTP server, on threads of its own, for what diagd's processes tell."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from diagd.daemon.errors import DiagdError

SLOW_CLIENT_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    content_type: str
    body: str


Get = Callable[[str, Mapping[str, str]], Answer]  # path, query; likewise for POST
Refused = Callable[[str, str, int, str], DiagdError]  # what for, host, port, reason


def _handler(get: Get, post: Get | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "diagd"
        sys_version = ""
        protocol_version = "HTTP/1.1"
        timeout: ClassVar[float] = SLOW_CLIENT_S

        def do_GET(self) -> None:
            self._answer(get)

        def do_POST(self) -> None:
            self.close_connection = True  # a body, if there is one, is not read
            if post is None:
                self.send_error(501, "only GET is known here")
            else:
                self._answer(post)

        def _answer(self, ask: Get) -> None:
            parts = urlsplit(self.path)
            answer = ask(parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()})
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


class HttpServer:
    """Answers GET requests with `get`, and POST with `post`, called in a thread of the request's own."""

    def __init__(self, get: Get, host: str, port: int, refused: Refused, post: Get | None = None) -> None:
        self._get, self._post, self._refused = get, post, refused
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
            self._server = _Server((self._host, self._port), _handler(self._get, self._post))
        except OSError as exc:
            raise self._refused("HTTP", self._host, self._port, exc.strerror or str(exc)) from exc
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
