"""A terminal for tests: a real pseudo-terminal with a program on it, and what a person would see there."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyte

ALTERNATE_OFF = b"\x1b[?1049l"
ON_TERMINAL = (sys.executable, "-S", str(Path(__file__).parent.parent / "on_terminal.py"))
PATIENCE_S = 30.0


class Terminal:
    """Runs a command on a pseudo-terminal of this size; TERM=xterm's alternate screen, pyte's eyes."""

    def __init__(
        self, command: Sequence[str], width: int = 100, height: int = 30, cwd: Path | None = None, **environ: str
    ) -> None:
        self._screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._ours, self.line = pty.openpty()
        self._set_size(width, height)
        self.attributes = self._attributes()
        env = {k: v for k, v in os.environ.items() if k not in ("LINES", "COLUMNS", "NO_COLOR")}
        self.process = subprocess.Popen(
            [*ON_TERMINAL, *command], stdin=self.line, stdout=self.line, stderr=self.line, start_new_session=True,
            env={**env, "TERM": "xterm-256color", **environ}, cwd=cwd,
        )  # fmt: skip

    def _attributes(self) -> list[Any]:
        found = termios.tcgetattr(self.line)
        return [*found[:6], list(found[6])]

    def _set_size(self, width: int, height: int) -> None:
        fcntl.ioctl(self.line, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    @property
    def restored(self) -> bool:
        """Whether the terminal is as the program found it: its modes, the first screen, the cursor."""
        left = self.raw.rfind(ALTERNATE_OFF) > self.raw.rfind(b"\x1b[?1049h")
        cursor = self.raw.rfind(b"\x1b[?25h") > self.raw.rfind(b"\x1b[?25l")
        return left and cursor and self._attributes() == self.attributes

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return [text.rstrip() for text in self._screen.display]

    @property
    def text(self) -> str:
        """What is on the screen, in one piece."""
        return "\n".join(self.lines)

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def resize(self, width: int, height: int) -> None:
        """Make the window another size; the kernel tells the program."""
        self._screen.resize(height, width)
        self._set_size(width, height)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def wait(self, condition: Callable[[], object]) -> None:
        """Read until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"it did not come to be; the screen:\n{self.text}"
            self.read(0.1)

    def read(self, timeout_s: float = 0.0) -> None:
        """Take what was written."""
        while select.select([self._ours], [], [], timeout_s)[0]:
            data = os.read(self._ours, 1 << 16)
            self.raw += data
            self._stream.feed(data)
            timeout_s = 0.0

    def end(self) -> int:
        """Read until the program has ended; its exit code."""
        self.wait(lambda: self.process.poll() is not None)
        self.read(0.05)
        return self.process.returncode

    def close(self) -> None:
        """End the program where it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self.line)
