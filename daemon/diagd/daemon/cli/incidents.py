"""`diagd incidents`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

_PARTIAL = 3


@click.command("incidents")
@click.argument("source", required=False, metavar="[JOB|REPORT]")
@click.option("--job", metavar="NAME", help="The same as JOB, as the other commands have it.")
@click.option("--json", "as_json", is_flag=True, help="The whole report, as report.json has it.")
@click.option("--fail", is_flag=True, help="Exit with 1 where a critical incident is open.")
def command(source: str | None, job: str | None, as_json: bool, fail: bool) -> int:
    """List the incidents of a job.

    JOB is a job's name, running or among the last that have finished; REPORT a report.json or the folder that holds
    it. Without either: the only job that runs here, or if none does the last one that has finished.

    Exit code 3: the report was not written to the job's end, so more may have happened.
    """
    from diagd.daemon.cli.analyze import printable
    from diagd.daemon.cli.reports import find_report
    from diagd.daemon.report.text import summary_lines, verdict_lines

    if source is not None and job is not None:
        raise click.UsageError("name the job once: as JOB, or with --job")
    found = find_report(source or job)
    report = found.report
    if found.caveat:
        click.echo(f"diagd: {found.caveat}", err=True)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        if source is None and job is None:
            whose = report["job"]
            click.echo(printable(f"job {whose['id']}: {' '.join(whose.get('command') or ())}").rstrip(": "), err=True)
        for incident in _with_dumps_from(found.home, report["incidents"]):
            click.echo("\n".join(verdict_lines(incident, colour=_colour())))
        click.echo(" ".join(summary_lines(report)))
    bad = any(i["state"] == "open" and i["severity"] == "critical" for i in report["incidents"])
    return 1 if fail and bad else 0 if found.whole else _PARTIAL


def _colour() -> bool:
    import os
    import sys

    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _with_dumps_from(home: Path | None, incidents: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """With the dumps' whole paths: a report has them relative to its own folder, which is not where a person is."""
    for incident in incidents:
        dump = home / incident["dump"] if home is not None and incident.get("dump") else None
        yield {**incident, "dump": str(dump)} if dump is not None and dump.is_dir() else incident
