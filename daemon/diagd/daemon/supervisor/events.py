"""What wakes the supervisor, in one queue: signals, ends of children, words of the watch."""

import os
import queue
import signal
import threading
from dataclasses import dataclass
from typing import Any

PASSED_ON = (
    signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGINT, signal.SIGWINCH,
)  # fmt: skip
CUTTING = frozenset(PASSED_ON) - {signal.SIGWINCH}  # a person who changes the window's size is in no hurry
# Sent by a terminal to its whole foreground group, so the job has them already.
FROM_KEYBOARD = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
_SI_KERNEL = 0x80


@dataclass(frozen=True, slots=True)
class Signalled:
    """diagd got a signal."""

    number: signal.Signals
    by_terminal: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """A child has ended, and waits to be reaped."""

    pid: int


@dataclass(frozen=True, slots=True)
class Said:
    """The watch process said something; None where its channel closed."""

    watcher: object
    message: dict[str, Any] | None


Event = Signalled | Ended | Said


class Events:
    """The queue. Made in the main thread before any other, since a thread inherits what its maker blocks."""

    def __init__(self) -> None:
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        threading.Thread(target=self._take_signals, name="diagd-signals", daemon=True).start()

    def put(self, event: Event) -> None:
        """Add one."""
        self._queue.put(event)

    def next(self, timeout_s: float | None) -> Event | None:
        """The next event; None after `timeout_s`."""
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def wait_for(self, pid: int) -> None:
        """Have `Ended` put when this child ends."""
        threading.Thread(target=self._wait, args=(pid,), name=f"diagd-wait-{pid}", daemon=True).start()

    def _wait(self, pid: int) -> None:
        # Not reaped here: until the main thread does, its pid cannot become that of another, which a signal might hit.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self.put(Ended(pid))

    def _take_signals(self) -> None:
        while True:
            info = signal.sigwaitinfo(PASSED_ON)
            number = signal.Signals(info.si_signo)
            self.put(Signalled(number, number in FROM_KEYBOARD and info.si_code == _SI_KERNEL))


def peeked_exit_code(pid: int) -> int:
    """A shell's exit code for a child that has ended, which is left to be reaped."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert found is not None  # noqa: S101 - only WNOHANG gives none
    return found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status


def exit_code_of(status: int) -> int:
    """A shell's exit code for a wait status."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
