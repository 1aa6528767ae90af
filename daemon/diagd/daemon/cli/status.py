"""`diagd status`."""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

import click

_HEADINGS = ("RANK", "STATE", "STEP", "PHASE", "PROGRESS", "WAITS", "PID", "HOST")


@click.command("status", short_help="Show what each rank of a running job does.")
@click.option("--job", metavar="NAME", help="Which job; needed only where several run here.")
@click.option("--json", "as_json", is_flag=True, help="As JSON of the form diagd.status/1, for scripts.")
def command(job: str | None, as_json: bool) -> None:
    """Show what each rank of a running job does: its state, step, phase, and since when there was no progress."""
    from diagd.daemon.cli.jobs import find_job, job_name
    from diagd.daemon.cli.jobview.source import read_status

    found = find_job(job)
    status = read_status(found)
    if as_json:
        click.echo(json.dumps(status, indent=2))
        return
    head = f"job {job_name(found)}"
    if isinstance(started := found.info.get("started_s"), int | float):
        head += f", running for {_span(time.time() - started)}"
    click.echo(f"{head}: {' '.join(map(str, found.info.get('command', [])))[:100]}")
    waits = _waits_for(status["incidents"])
    for line in _table([_cells(rank, waits) for rank in status["ranks"]]):
        click.echo(line)
    if not status["ranks"]:
        click.echo("no rank has reported yet")
    for incident in status["incidents"]:
        if incident.get("state", "open") == "open":
            click.echo(f"{incident['severity']} {incident['kind']}: {incident['summary']}")


def _waits_for(incidents: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Whom each rank waits for, where an open incident says so."""
    from diagd.daemon.ranks import rank_ranges

    found: dict[int, str] = {}
    for incident in incidents:
        if incident.get("state", "open") == "open" and incident["ranks"]:
            text = f"for {rank_ranges(incident['ranks'], named=True)}"
            found = {**dict.fromkeys(incident["waiting_ranks"], text), **found}
    return found


def _cells(rank: Mapping[str, Any], waits: Mapping[int, str]) -> tuple[str, ...]:
    idle_s = rank.get("seconds_since_progress")
    step = rank.get("step")
    return (
        str(rank["rank"]),
        str(rank["state"]),
        "-" if step is None else str(step),
        str(rank["phase"]),
        "-" if idle_s is None else f"{_span(float(idle_s))} ago",
        _wait(rank, waits.get(rank["rank"], "-")),
        str(rank["pid"]),
        str(rank.get("host", "")),
    )


def _wait(rank: Mapping[str, Any], otherwise: str) -> str:
    wait = rank.get("wait")
    if isinstance(wait, Mapping):
        text = str(wait.get("op") or wait.get("name") or "")
        if wait.get("group"):
            text += f" ({wait['group']})"
        if isinstance(wait.get("seconds"), int | float):
            text += f" {_span(float(wait['seconds']))}"
        return text or otherwise
    return str(wait) if wait else otherwise


def _table(rows: list[tuple[str, ...]]) -> Iterable[str]:
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    for row in (_HEADINGS, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
