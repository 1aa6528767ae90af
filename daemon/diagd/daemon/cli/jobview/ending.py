"""Whether a job has ended, and how."""

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagd.daemon.agent.discovery import Job

_REPORT_S = 10.0  # the watch's last report is written within 8 s of the end
_ABORTED = 86


def ended(job: "Job", status: Mapping[str, Any]) -> bool:
    """Whether it is over, as the status or the machine says."""
    from diagd.daemon.cli.jobs import is_running

    if status["job"]["ended_at"] is not None and status["source"] == "watch":
        return True
    if job.info.get("exit_code") is not None or not job.run_dir.is_dir():  # the supervisor's last deed
        return True
    return status["source"] == "boxes" and not is_running(job)


def last_words(job: "Job", status: Mapping[str, Any], stop: threading.Event | None = None) -> list[str]:
    """How it ended, in a few lines; waits until its last report is written."""
    from diagd.daemon.cli.jobs import job_name
    from diagd.daemon.report.text import cut_off, summary_lines

    report = _last_report(job, stop or threading.Event())
    code = report["job"]["exit_code"] if report else job.info.get("exit_code")
    if code is None:
        code = status["job"]["exit_code"]
    lines = [f"job {job_name(job)} has ended{_how(code)}"]
    return lines if report is None else [*lines, *summary_lines(report), *cut_off(report)]


def _how(code: object) -> str:
    if not isinstance(code, int):
        return "; its exit code is not known"
    if code == _ABORTED:
        return f": diagd ended it (exit code {code})"
    if code > 128:
        with suppress(ValueError):
            return f" by {signal.Signals(code - 128).name} (exit code {code})"
    return f" with exit code {code}"


def _last_report(job: "Job", stop: threading.Event) -> dict[str, Any] | None:
    from diagd.daemon.cli.jobs import kept_report, read_report, supervisor_lives

    deadline = time.monotonic() + _REPORT_S  # the supervisor removes its directory last
    ours = job.info.get("supervisor_pid") == os.getpid()
    while job.run_dir.is_dir() and not ours and supervisor_lives(job.info) and time.monotonic() < deadline:
        if stop.wait(0.1):
            break
    place = job.info.get("report")
    found = [read_report(Path(place)) if place else None, kept_report(job.run_dir)]
    ours_alone = [one for one in found if one and one["job"].get("started_at") == job.info.get("started_s")]
    # Where the disk was full, the one of the start has stayed where it was.
    return next((one for one in ours_alone if one.get("final") is not False), next(iter(ours_alone), None))
