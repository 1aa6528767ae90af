"""`diagd incidents`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from diagd.daemon.errors import DiagdError


@click.command("incidents")
@click.argument("source", required=False, metavar="[JOB|REPORT]")
@click.option("--job", metavar="NAME", help="The same as JOB, as the other commands have it.")
@click.option("--json", "as_json", is_flag=True, help="The whole report, as report.json has it.")
@click.option("--fail", is_flag=True, help="Exit with 1 where a critical incident is open.")
def command(source: str | None, job: str | None, as_json: bool, fail: bool) -> int:
    """List the incidents of a job.

    JOB is a job's name, running or among the last that have finished; REPORT a report.json or the folder that holds
    it. Without either: the only job that runs here, or if none does the last one that has finished.
    """
    from diagd.daemon.cli.analyze import printable
    from diagd.daemon.report.text import summary_lines, verdict_lines

    if source is not None and job is not None:
        raise click.UsageError("name the job once: as JOB, or with --job")
    report, home = _report(source or job)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        if source is None and job is None:
            whose = report["job"]
            click.echo(printable(f"job {whose['id']}: {' '.join(whose.get('command') or ())}").rstrip(": "), err=True)
        for incident in _with_dumps_from(home, report["incidents"]):
            click.echo("\n".join(verdict_lines(incident, colour=_colour())))
        click.echo(" ".join(summary_lines(report)))
    bad = any(i["state"] == "open" and i["severity"] == "critical" for i in report["incidents"])
    return 1 if fail and bad else 0


def _colour() -> bool:
    import os
    import sys

    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _with_dumps_from(home: Path | None, incidents: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """With the dumps' whole paths: a report has them relative to its own folder, which is not where a person is."""
    for incident in incidents:
        dump = home / incident["dump"] if home is not None and incident.get("dump") else None
        yield {**incident, "dump": str(dump)} if dump is not None and dump.is_dir() else incident


def _report(source: str | None) -> tuple[Mapping[str, Any], Path | None]:
    """The report, and its folder where it has one."""
    from diagd.daemon.cli.jobs import read_report, running_jobs, state_home

    if source is not None and Path(source).exists():
        if given := read_report(Path(source)):
            return given, Path(source) if Path(source).is_dir() else Path(source).parent
        help = "name a report.json, or the folder that holds it"
        raise DiagdError(f"{source}: is no report of diagd's", help=help, exit_code=2)
    if report := _of_running(source):
        return report
    try:
        finished = sorted(state_home().iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        finished = []
    for folder in finished:
        if (kept := read_report(folder)) and source in (None, folder.name, kept["job"]["id"]):
            return kept, Path(kept.get("folder", folder))
    known = [*(job.job for job in running_jobs()), *(folder.name for folder in finished)]
    raise DiagdError(
        f"no job is called {source}" if source else "no job has run under diagd here",
        help=f"known are: {', '.join(known[:10])}" if known else "name a report.json, or start a job with `diagd run`",
        exit_code=4,
    )


def _of_running(source: str | None) -> tuple[Mapping[str, Any], Path | None] | None:
    from diagd.daemon.cli.jobs import fetch, find_job, job_name, read_report, running_jobs

    jobs = running_jobs()
    if source is None and len(jobs) > 1:
        find_job(None)  # says so, and which there are
    # The folder's name is one job's alone.
    for job in sorted(jobs, key=lambda job: job.job != source):
        if source not in (None, job.job, job_name(job)):
            continue
        if address := job.info.get("http"):
            try:
                found = fetch(address, "/api/v1/report")
            except (OSError, ValueError):
                found = None
            if isinstance(found, dict) and "incidents" in found:
                home = job.info.get("report")
                return found, Path(home) if isinstance(home, str) else None
        for place in (job.info.get("report"), job.run_dir):
            if place and (report := read_report(Path(place))):
                _say_how_old(Path(place), job_name(job))
                return report, Path(place)
    return None


def _say_how_old(home: Path, job: str) -> None:
    import time

    age_s = max(time.time() - (home / "report.json").stat().st_mtime, 0.0)
    text = f"diagd: job {job} runs, and its watch process does not answer: this is its report of {age_s:.0f} s ago"
    click.echo(f"{text}; `diagd dump --rank all` looks at the ranks themselves", err=True)
