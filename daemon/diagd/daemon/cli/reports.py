"""Find the report that a person means, and say how far it is the whole story."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagd.daemon.cli.choices import without_diagd
from diagd.daemon.cli.jobs import fetch, find_job, job_name, kept_in, read_report, running_jobs, state_home
from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from diagd.daemon.agent.discovery import Job

Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """A report, the folder it is of where it has one, and what a person must know of it beside what it says."""

    report: Report
    home: Path | None = None
    caveat: str = ""
    whole: bool = True  # False: it was not written to the job's end, and the job is no longer there to ask


def find_report(source: str | None) -> Found:
    """The report of a job by its name or the report's place; without either of the only job that runs, else the last.

    Raises:
        DiagdError: There is none, or several jobs run and none is named.
    """
    if source is not None and Path(source).exists():
        return _at(Path(source))
    if found := _of_running(source):
        return found
    finished = _finished()
    # The folder's name is one job's alone, and is told without its node.
    for folder in sorted(finished, key=lambda folder: source not in _names(folder)):
        written_in = kept_in(folder)
        if (kept := read_report(written_in)) and source in (None, *_names(folder), kept["job"]["id"]):
            found = _judged(kept, Path(kept.get("folder", written_in)), written_in)
            return found if source else replace(found, caveat="\n".join(filter(None, [found.caveat, without_diagd()])))
    begun = [folder for folder in finished if source and folder.name.startswith(source)]
    if len(begun) == 1 and source != begun[0].name:
        return find_report(begun[0].name)
    raise _none(source, [folder.name for folder in finished if (kept_in(folder) / "report.json").exists()])


def _names(folder: Path) -> tuple[str, str]:
    return folder.name, folder.name.rpartition("@")[0]


def _finished() -> list[Path]:
    try:
        return sorted(state_home().iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []


def _at(place: Path) -> Found:
    report = read_report(place)
    if report is None:
        help = "name a report.json, or the folder that holds it"
        raise DiagdError(f"{place}: is no report of diagd's", help=help, exit_code=2)
    home = place if place.is_dir() else place.parent
    if report.get("final") is not False:
        return Found(report, home)
    for job in running_jobs():
        if job.info.get("report") == str(home.absolute()) and (found := _asked(job)):
            return found
    for folder in _finished():  # where the disk of the one that was asked for was full
        kept = read_report(folder)
        if kept is not None and kept.get("folder") == str(home.absolute()) and _is_later(kept, report):
            return _judged(kept, home, folder)
    return _judged(report, home, home)


def _is_later(kept: Report, report: Report) -> bool:
    same = all(kept["job"][key] == report["job"][key] for key in ("id", "started_at"))
    return same and kept.get("final") is not False


def _judged(report: Report, home: Path, written_in: Path) -> Found:
    """Of a job that runs no more."""
    if report.get("final") is not False:
        return Found(report, home)
    at = time.strftime("%F %T", time.localtime((written_in / "report.json").stat().st_mtime))
    text = f"this report is not whole: it is of {at}, while the job ran, and what came after it is not in it"
    return Found(report, home, f"{text}: the disk was full, or diagd's own process was killed", whole=False)


def _of_running(source: str | None) -> Found | None:
    jobs = running_jobs()
    if source is None and len(jobs) > 1:
        find_job(None)  # says so, and which there are
    # The folder's name is one job's alone.
    for job in sorted(jobs, key=lambda job: job.job != source):
        if source in (None, job.job, job_name(job)) and (found := _asked(job)):
            return found
    return None


def _asked(job: "Job") -> Found | None:
    """What the job's watch says; where that does not answer, the report that it wrote last."""
    if address := job.info.get("http"):
        try:
            report = fetch(address, "/api/v1/report")
        except (OSError, ValueError):
            report = None
        if isinstance(report, dict) and "incidents" in report:
            home = job.info.get("report")
            return Found(report, Path(home) if isinstance(home, str) else None)
    for place in (job.info.get("report"), job.run_dir):
        if place and (kept := read_report(Path(place))):
            return Found(kept, Path(place), _how_old(Path(place), job_name(job)))
    return None


def _how_old(home: Path, job: str) -> str:
    age_s = max(time.time() - (home / "report.json").stat().st_mtime, 0.0)
    text = f"job {job} runs, and its watch process does not answer: this is its report of {age_s:.0f} s ago"
    return f"{text}; `diagd dump --rank all` looks at the ranks themselves"


def _none(source: str | None, finished: list[str]) -> DiagdError:
    known = [*(job.job for job in running_jobs()), *finished]
    help = f"known are: {', '.join(known[:10])}" if known else "name a report.json, or start a job with `diagd run`"
    said = f"no job is called {source}" if source else "no job has run under diagd here"
    return DiagdError(said, help="\n".join(filter(None, [without_diagd(), help])), exit_code=4)
