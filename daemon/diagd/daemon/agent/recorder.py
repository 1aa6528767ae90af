"""Fetch torch's flight recorder from a rank: its worker server answers on a unix socket without the rank's GIL."""

import json
import re
import socket
import time
from pathlib import Path

from diagd.daemon.agent.entries import Members, operations
from diagd.daemon.state.model import Operation

TIMEOUT_S = 2.0
_REQUEST = b"POST /handler/fr_trace_json HTTP/1.1\r\nHost: rank\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_MAX_BYTES = 64 * 1024 * 1024


class NoRecorder(Exception):
    """The rank has no flight recorder to read, or does not answer; the message says why."""


def fetch(path: Path, timeout_s: float = TIMEOUT_S) -> bytes:
    """The recorder's JSON as the rank's worker server gives it.

    Raises:
        NoRecorder: There is no server, or it gives no whole answer within `timeout_s` (a stopped rank).
    """
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(_REQUEST)
            return _answer(connection, deadline)
        except TimeoutError:
            raise NoRecorder(f"the worker server gave no answer within {timeout_s:g} s") from None
        except OSError as exc:
            raise NoRecorder(f"the worker server cannot be reached: {exc.strerror or exc}") from exc


def _answer(connection: socket.socket, deadline: float) -> bytes:
    """The body of the HTTP answer."""
    data, body_at, length = bytearray(), -1, -1
    while body_at < 0 or len(data) < body_at + length:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(1 << 20)
        if not part or len(data) > _MAX_BYTES:
            break
        data += part
        if body_at < 0 and (end := data.find(b"\r\n\r\n")) >= 0:
            body_at, length = end + 4, _content_length(bytes(data[:end]))
    if body_at < 0 or not data.startswith(b"HTTP/1.1 200") or len(data) < body_at + length:
        raise NoRecorder(f"the worker server answered {bytes(data[:60])!r}")
    return bytes(data[body_at:])


def _content_length(head: bytes) -> int:
    found = re.search(rb"content-length:\s*(\d+)", head, re.IGNORECASE)
    if found is None:
        raise NoRecorder("the worker server's answer does not say how long it is")
    return int(found[1])


def parse(data: bytes, members: Members | None = None) -> tuple[Operation, ...]:
    """The recorder's entries, oldest first; what is not understood of one is left at "not known".

    Args:
        members: Global ranks of each group by its name, to turn peers from places in a group into global ranks.

    Raises:
        NoRecorder: It is no flight recorder's JSON.
    """
    try:
        found = json.loads(data)
        entries = found["entries"] if "pg_status" not in found else found.get("entries", [])  # left out where none are
    except (ValueError, KeyError, TypeError) as exc:
        raise NoRecorder("what the worker server sent is no flight recorder's JSON") from exc
    if not isinstance(entries, list):
        raise NoRecorder("the flight recorder's entries are no list")
    return operations((entry for entry in entries if isinstance(entry, dict)), members or {})
