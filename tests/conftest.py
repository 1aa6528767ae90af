"""What holds for every test: no skip without a committed reason, and nothing left running."""

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")

# In the environment of all that a test starts, so that a rank which outlived its launcher is still known as ours.
RUN_TOKEN_NAME = "TESTS_RUN_TOKEN"
RUN_TOKEN = uuid.uuid4().hex

LEAK_GRACE_S = 3.0
# Threads that a library keeps for the life of the process, by a part of their names.
LASTING_THREADS = ("_poll_wrapper",)  # grpc.aio
LASTING_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def read_allowed_skips(path: Path) -> dict[str, str]:
    """Return the reason of each test that may be skipped; a line is `tests/x_test.py::name | reason`."""
    allowed = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        node, bar, reason = (part.strip() for part in line.partition(" | "))
        if not (node and bar and reason):
            raise pytest.UsageError(f"{path.name}:{number}: {line!r} is not of the form `test | reason`")
        allowed[node] = reason
    return allowed


class SkipPolice:
    """Fails the run over a skip (or expected failure) that allowed_skips.txt does not name with its reason."""

    def __init__(self, allowed: dict[str, str]) -> None:
        self._allowed = allowed
        self._refused: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._judge(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._judge(report)

    def _judge(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped:
            return
        reason = getattr(report, "wasxfail", None) or _skip_reason(report)
        wanted = self._allowed.get(report.nodeid) or self._allowed.get(report.nodeid.partition("[")[0])
        if wanted is None or wanted not in reason:
            self._refused.append(f"{report.nodeid} | {reason}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._refused and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._refused:
            terminalreporter.section("skipped without leave", red=True)
            terminalreporter.line(f"A skipped test fails the run unless {ALLOWED_SKIPS.name} names it with its reason:")
            for line in self._refused:
                terminalreporter.line(f"  {line}")


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text.removeprefix("Skipped: ")


def pytest_configure(config: pytest.Config) -> None:
    os.environ[RUN_TOKEN_NAME] = RUN_TOKEN
    config.pluginmanager.register(SkipPolice(read_allowed_skips(ALLOWED_SKIPS)), "skip-police")


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not any(name in thread.name for name in LASTING_THREADS)}


def _processes() -> tuple[set[psutil.Process], set[psutil.Process]]:
    """Return the live processes that descend from the tests or carry their token, and those that cannot be told yet.

    In the middle of execve a process shows an empty environment for a moment.
    """
    found, untold = set(psutil.Process().children(recursive=True)), set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environment = process.environ()
            if not environment:
                untold.add(process)
            elif process.pid != os.getpid() and environment.get(RUN_TOKEN_NAME) == RUN_TOKEN:
                found.add(process)
    return {process for process in found if _counts(process)}, {process for process in untold if _counts(process)}


def _counts(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        command = " ".join(process.cmdline())
        return process.status() != psutil.STATUS_ZOMBIE and not any(name in command for name in LASTING_PROCESSES)
    return False


def _describe(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"process {process.pid}: {' '.join(process.cmdline())[:200]}"
    return f"process {process.pid}"


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    threads, (processes, untold) = _threads(), _processes()
    yield
    deadline = time.monotonic() + LEAK_GRACE_S
    while True:
        now_running, now_untold = _processes()
        left_threads, left_processes = _threads() - threads, now_running - processes
        undecided = bool(now_untold - untold) and time.monotonic() < deadline
        if not (left_threads or left_processes or undecided):
            return
        if time.monotonic() >= deadline:
            break
        time.sleep(0.05)
    left = [f"thread {thread.name}" for thread in left_threads] + [_describe(process) for process in left_processes]
    for process in left_processes:  # or they would be in the way of the tests that follow
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    pytest.fail("left running by the test: " + "; ".join(sorted(left)), pytrace=False)
