"""`diagd status`."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence

import click

_HEADINGS = ("RANK", "STATE", "STEP", "PHASE", "PROGRESS", "WAITS", "PID", "HOST")


@click.command("status")
@click.option("--job", metavar="NAME", help="Which job; needed only where several run here.")
@click.option("--json", "as_json", is_flag=True, help="As JSON of the form diagd.status/1, for scripts.")
def command(job: str | None, as_json: bool) -> None:
    """Show what each rank of a running job does: its state, step, phase, and since when there was no progress."""
    from diagd.daemon.cli.jobs import find_job, job_name
    from diagd.daemon.cli.jobview.snapshot import waits_for
    from diagd.daemon.cli.jobview.source import read_status
    from diagd.daemon.cli.jobview.table import row
    from diagd.daemon.cli.jobview.text import duration
    from diagd.daemon.report.drill import unwatched

    found = find_job(job)
    status = read_status(found)
    if as_json:
        click.echo(json.dumps(status, indent=2))
        return
    head = f"job {job_name(found)}"
    if isinstance(started := found.info.get("started_s"), int | float):
        head += f", running for {duration(time.time() - started)}"
    click.echo(f"{head}: {' '.join(map(str, found.info.get('command', [])))[:100]}")
    if status["source"] == "boxes":
        click.echo("the watch does not answer: nothing is judged", err=True)
    waits = waits_for(status["incidents"])
    for line in _table([row(rank, waits) for rank in status["ranks"]]):
        click.echo(line)
    if not status["ranks"]:
        click.echo("no rank has reported yet")
    for incident in status["incidents"]:
        if incident.get("state", "open") == "open":
            click.echo(f"{incident['severity']} {incident['kind']}: {incident['summary']}")
    for note in unwatched(status["notes"]):
        click.echo(f"not watched: {note}")


def _table(rows: Sequence[Mapping[str, str]]) -> Iterable[str]:
    if not rows:
        return
    lines = [_HEADINGS, *(tuple(cells[name] for name in _HEADINGS) for cells in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
