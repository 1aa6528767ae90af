"""Runs cases under diagd and says how each report did; a few at a time, as small machines allow."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.live.cases import Case
from tests.live.job import LiveJob
from tests.live.judge import Verdict, judge

FLAGS = ("--hang-after", "10", "--on-hang", "abort")
STARTING_S = 45.0  # on top of a case's own limit: importing torch, and diagd's own ending
MAX_SHARING_RANKS = 3  # a larger job runs alone: importing torch is 3 seconds of CPU for each rank


@dataclass(slots=True, kw_only=True)
class Result:
    """One case that was run."""

    case: Case
    verdict: Verdict
    report: dict[str, Any] | None
    exit_code: int | None
    seconds: float  # the whole run
    verdict_s: float | None  # from the line that announces the fault to the incident in the report
    watched_s: float  # from the first rank's box to the end
    page: bool  # report.html is there
    dump_files: int  # in the top incident's dump
    tail: str = ""

    def told(self) -> str:
        """For a person who wants to know why it is not right."""
        return "; ".join(self.verdict.faults) + f"\nexit code {self.exit_code}, output:\n{self.tail}"


class _Witness:
    """What stands in the report, and since when."""

    def __init__(self, job: LiveJob) -> None:
        self._job = job
        self.first_seen: dict[tuple[str, str], float] = {}
        self.ever_critical: list[str] = []
        self.ranks_since: float | None = None
        self._last: Any = None

    def look(self) -> None:
        if self.ranks_since is None and self._job.boxes():
            self.ranks_since = time.time()
        report = self._job.report()
        if report is None or report is self._last:
            return
        self._last, now = report, time.time()
        for incident in report.get("incidents", []):
            self.first_seen.setdefault((incident["id"], incident["kind"]), now)
            if incident["severity"] == "critical":
                self.ever_critical.append(incident["kind"])


def run_case(case: Case, flags: Sequence[str] = FLAGS) -> Result:
    """Run one case from its first process to its last, and judge the report."""
    began = time.time()
    with LiveJob(case.command(), [case.script], flags=flags) as job:
        witness = _Witness(job)
        exit_code = job.finish(case.run_limit_s + STARTING_S, witness.look)
        ended = time.time()
        report = job.report()
        verdict = judge(case, report, exit_code, witness.ever_critical)
        marked_at = job.first(case.fault_marker) if case.fault_marker else None
        seen_at = witness.first_seen.get(verdict.top) if verdict.top else None
        if case.fault_marker and marked_at is None:
            verdict.faults.append(f"the job never said {case.fault_marker!r}: its fault did not happen")
        return Result(
            case=case,
            verdict=verdict,
            report=report,
            exit_code=exit_code,
            seconds=ended - began,
            verdict_s=seen_at - marked_at if seen_at and marked_at else None,
            watched_s=ended - witness.ranks_since if witness.ranks_since else 0.0,
            page=(job.report_dir / "report.html").is_file(),
            dump_files=_dump_files(job, report, verdict),
            tail="" if verdict.right else job.tail(40),
        )


def run_cases(cases: Iterable[Case], done: Callable[[Result], None], at_once: int = 2) -> None:
    """Run cases in their order, small ones `at_once`; `done` is told of each as it ends, one at a time."""
    lock = threading.Lock()

    def run(case: Case) -> None:
        result = run_case(case)
        with lock:
            done(result)

    cases = list(cases)
    small = [case for case in cases if at_once > 1 and case.nproc <= MAX_SHARING_RANKS]
    with ThreadPoolExecutor(max(1, at_once), thread_name_prefix="live-case") as pool:
        list(pool.map(run, small))
    for case in cases:
        if case not in small:
            run(case)


def _dump_files(job: LiveJob, report: dict[str, Any] | None, verdict: Verdict) -> int:
    for incident in (report or {}).get("incidents", []):
        if (incident["id"], incident["kind"]) == verdict.top and incident.get("dump"):
            return sum(path.is_file() for path in (job.report_dir / incident["dump"]).rglob("*"))
    return 0
