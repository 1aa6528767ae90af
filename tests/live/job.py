"""One real job, started in a scratch folder, with or without diagd; listened to while it runs, and cleaned up after."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

DIAGD = str(Path(sys.executable).with_name("diagd"))
POLL_S = 0.1
# In the environment of all that a job starts, diagd's own processes too: workers of torchrun lead sessions of their
# own, and what has lost its parents is still known by it.
MARK = "LIVE_JOB_MARK"


class Line:
    """A line of the job's output and when it came."""

    __slots__ = ("at_s", "error", "text")

    def __init__(self, at_s: float, text: str, error: bool) -> None:
        self.at_s = at_s
        self.text = text
        self.error = error


class LiveJob:
    """A running command; as a context manager it ends all that it started.

    Args:
        command: The job's own words.
        files: Copied to the scratch folder that is its working directory.
        flags: Options of `diagd run`; None: without diagd.
        environ: On top of this process's environment.
        wrap: Words before everything else, such as another interpreter that starts diagd.
    """

    def __init__(
        self,
        command: Sequence[str],
        files: Sequence[Path] = (),
        *,
        flags: Sequence[str] | None = (),
        environ: Mapping[str, str] | None = None,
        wrap: Sequence[str] = (DIAGD,),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="live-"))
        self.report_dir = self.folder / "report"
        self.job_id = f"live-{uuid.uuid4().hex[:8]}"
        self.lines: list[Line] = []
        self._mark = uuid.uuid4().hex
        self._watched = flags is not None
        self._report: dict[str, Any] | None = None
        self._report_version = (0, 0)
        self._prepare(files)
        words = list(command)
        if flags is not None:
            words = [*wrap, "run", "--report", str(self.report_dir), *flags, "--", *words]
        self.started_s = time.time()
        self.process = subprocess.Popen(
            words,
            cwd=self.folder,
            env=self._environ(environ or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._readers = [self._read(self.process.stdout, False), self._read(self.process.stderr, True)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def stdout(self) -> str:
        """All that came on standard output so far."""
        return "".join(line.text for line in self.lines if not line.error)

    @property
    def stderr(self) -> str:
        """All that came on standard error so far."""
        return "".join(line.text for line in self.lines if line.error)

    @property
    def output(self) -> str:
        """Both, in the order in which they came."""
        return "".join(line.text for line in self.lines)

    def first(self, part: str) -> float | None:
        """When the first line with `part` came."""
        return next((line.at_s for line in self.lines if part in line.text), None)

    def report(self) -> dict[str, Any] | None:
        """The report as it stands; None before the first one."""
        path = self.report_dir / "report.json"
        with suppress(OSError, ValueError):
            found = path.stat()
            version = (found.st_mtime_ns, found.st_ino)
            if version != self._report_version:
                report = json.loads(path.read_text(encoding="utf-8"))
                self._report, self._report_version = report, version
        return self._report

    def until(self, condition: Callable[[], Any], limit_s: float, what: str = "it") -> Any:
        """Wait for something that is true, and return it.

        Raises:
            AssertionError: It did not become true in time, or the job ended before.
        """
        deadline = time.monotonic() + limit_s
        while True:
            ended = self.process.poll() is not None
            if found := condition():
                return found
            if ended or time.monotonic() > deadline:
                why = f"the job ended with {self.process.returncode}" if ended else f"{limit_s:.0f} s are over"
                raise AssertionError(f"{what} never came true: {why}\n{self.tail()}")
            time.sleep(POLL_S / 2)

    def until_said(self, part: str, limit_s: float = 60.0) -> float:
        """Wait for a line with `part`; when it came."""
        return float(self.until(lambda: self.first(part), limit_s, f"a line with {part!r}"))

    def finish(self, limit_s: float, each: Callable[[], None] = lambda: None) -> int | None:
        """Wait for the end, calling `each` while waiting; the exit code, None where it ran past its limit."""
        deadline = time.monotonic() + limit_s
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                return None
            each()
            time.sleep(POLL_S)
        each()
        for reader in self._readers:
            reader.join(5)
        return self.process.returncode

    def boxes(self) -> list[Path]:
        """The ranks' boxes, wherever they lie."""
        roots = (Path("/dev/shm"), self.folder / "tmp")
        return [box for root in roots for box in root.glob(f"diagd-{os.getuid()}/{self.job_id}/*.box")]

    def watch_pid(self) -> int | None:
        """The process in which the agent and the embedded aggregator live."""
        for pid in self.pids():
            with suppress(OSError):
                if (
                    b"diagd.daemon.watch" in Path(f"/proc/{pid}/cmdline").read_bytes()
                    and _parent(pid) == self.process.pid
                ):
                    return pid
        return None

    def pids(self) -> list[int]:
        """All live processes that the job, or diagd for it, has started."""
        wanted = f"{MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                pid = int(entry.name)
                if pid != os.getpid() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(pid)
        return found

    def tail(self, lines: int = 25) -> str:
        """The end of the output, for a message."""
        return "".join(line.text for line in self.lines[-lines:])

    def close(self) -> None:
        """End what is left of the job, and remove its folder."""
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            left = self.pids()
            if not left:
                break
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, number)
            self._wait_gone(0.0 if number == signal.SIGCONT else 2.0)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        for reader in self._readers:
            reader.join(5)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait_gone(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while self.pids() and time.monotonic() < deadline:
            self.process.poll()
            time.sleep(POLL_S)

    def _prepare(self, files: Sequence[Path]) -> None:
        self.report_dir.mkdir()
        (self.folder / "tmp").mkdir()
        for path in files:
            shutil.copy(path, self.folder / path.name)

    def _environ(self, extra: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DIAGD", "SLURM", "PET_"))}
        ours = {
            MARK: self._mark,
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.folder / "tmp"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        if self._watched:
            ours["DIAGD_JOB_ID"] = self.job_id
        return {**kept, **ours, **extra}

    def _read(self, stream: IO[str] | None, error: bool) -> threading.Thread:
        assert stream is not None

        def read() -> None:
            for text in stream:
                self.lines.append(Line(time.time(), text, error))

        thread = threading.Thread(target=read, name="live-output", daemon=True)
        thread.start()
        return thread


def _parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text[text.rindex(")") + 2 :].split()[1])
