"""The channel between a watch process and its supervisor: JSON, one message a line."""

import json
import select
import socket
from contextlib import suppress
from typing import Any

MAX_LINE = 1 << 20


class Control:
    """The watch's end of the channel.

    Args:
        fd: The inherited socket; None where there is no supervisor, which then never says anything.
    """

    def __init__(self, fd: int | None) -> None:
        self._socket = socket.socket(fileno=fd) if fd is not None else None
        self._buffer = b""
        self.closed = False
        if self._socket is not None:
            self._socket.setblocking(False)

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message; one that finds the other end gone is lost."""
        if self._socket is None:
            return
        data = json.dumps(message).encode() + b"\n"
        with suppress(OSError):
            self._socket.settimeout(1.0)
            self._socket.sendall(data)
        with suppress(OSError):
            self._socket.setblocking(False)

    def wait(self, timeout_s: float, wake_fd: int) -> list[dict[str, Any]]:
        """The messages that come until the time is over, something wakes us, or the channel closes."""
        fds = [wake_fd] if self._socket is None or self.closed else [wake_fd, self._socket.fileno()]
        ready, _, _ = select.select(fds, [], [], max(timeout_s, 0.0))
        if self._socket is None or self.closed or self._socket.fileno() not in ready:
            return []
        return self._read()

    def _read(self) -> list[dict[str, Any]]:
        assert self._socket is not None  # noqa: S101 - the caller's condition
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > MAX_LINE:
            self._buffer = b""
        messages = []
        for line in lines:
            with suppress(ValueError):  # half a line of a supervisor that was killed
                message = json.loads(line)
                if isinstance(message, dict):
                    messages.append(message)
        return messages

    def close(self) -> None:
        """Let go of it."""
        if self._socket is not None:
            self._socket.close()
            self.closed = True
