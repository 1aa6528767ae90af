"""`diagd analyze`."""

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from diagd.daemon.cli.run import Seconds
from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diagd.daemon.analyze.scan import Scanned
    from diagd.daemon.analyze.verdict import Analysis

Judged = TypeVar("Judged", "Analysis", "Scanned")
NO_FAULT = "no fault found in these dumps"
_EVERY_S = 5.0  # a line of progress where no terminal shows it


@click.command("analyze")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH…")
@click.option("--json", "as_json", is_flag=True, help="The whole report, as report.json has it.")
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write report.json and report.html to this folder.",
)
@click.option(
    "--hang-after",
    type=Seconds(),
    metavar="SECONDS",
    help="Waits of this age count as hung (60, or as the job's); younger ones are warned of.",
)
@click.option(
    "--world-size",
    type=click.IntRange(1, 1 << 17),
    default=None,
    metavar="N",
    help="How many ranks the job has, where its dumps do not say so (gloo's do not).",
)
@click.option("--job", metavar="NAME", help="Of a recording of several jobs, this one alone.")
def command(
    paths: tuple[Path, ...], as_json: bool, report: Path | None, hang_after: float | None, world_size: int | None,
    job: str | None,
) -> int:  # fmt: skip
    """Say why a job hung, from what its ranks left behind; the job need not run any more, nor have run under diagd.

    \b
    PATH is one of:
      flight-recorder dumps of torch 2.6 and newer (pickle or JSON, NCCL or gloo): the files, or their folder
      a dump folder of diagd's (`diagd dump`, or dumps/ of a report), or the report's folder, for its newest dump
      a recording (`diagd run --record FILE`)

    Pickles are read without running what they hold. A rank whose dump is missing or cannot be read is named, and
    blamed for nothing.

    \b
    Exit code: 0 no fault found, things that are only worth knowing (info) aside; 1 a fault was found; 2 no dump; 3 no
      fault found, and not all could be decided (dumps are missing, or damaged).
    """
    from diagd.daemon.analyze.sources import source_of
    from diagd.daemon.analyze.verdict import analyze

    found = analyze(source_of(paths), hang_after_s=hang_after, world_size=world_size or 0, progress=_Progress())
    return tell(found, _lines, job, report, "the recording holds the jobs", as_json=as_json)


def tell(
    found: "Sequence[Judged]", lines: "Callable[[Judged], list[str]]", job: str | None, report: Path | None,
    several: str, *, as_json: bool,
) -> int:  # fmt: skip
    """Print what was found, all of it or of one job, and write its report; the exit code.

    Raises:
        DiagdError: There is no such job, several where one is asked for, or the folder cannot be written.
    """
    chosen = [one for one in found if job in (None, one.report["job"]["id"])]
    if not chosen or (len(chosen) > 1 and (as_json or report)):
        names = ", ".join(one.report["job"]["id"] for one in found)
        raise DiagdError(f"{several} {names}", help="choose one with --job NAME", exit_code=2)
    if report is not None:
        write_report_to(report, chosen[0].report)
    for one in chosen:
        click.echo(json.dumps(one.report, indent=2) if as_json else "\n".join(lines(one)))
    return 1 if any(one.faulty for one in chosen) else 3 if any(one.partial for one in chosen) else 0


def _lines(found: "Analysis") -> list[str]:
    from diagd.daemon.report.text import verdict_lines

    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    incidents = found.report["incidents"]
    lines = [line for incident in incidents for line in verdict_lines(incident, colour=colour)]
    count = f"{len(incidents)} fault{'s' * (len(incidents) != 1)} found"
    lines.append(f"{found.headline}: {count if incidents else NO_FAULT}.")
    return [*lines, *(f"  note: {printable(note)}." for note in found.report["notes"])]


def printable(text: str) -> str:
    """Names of files and groups come from elsewhere, and must not write to the terminal what they like."""
    return "".join(c if c.isprintable() else "�" for c in text).rstrip(".")


def write_report_to(folder: Path, report: dict[str, Any]) -> None:
    """Write report.json and report.html.

    Raises:
        DiagdError: The folder cannot be written.
    """
    from diagd.daemon.aggregator.reporting import write_report
    from diagd.daemon.report.html import write_html

    try:
        write_report(folder, report)
        write_html(report, folder / "report.html")
    except OSError as exc:
        raise DiagdError(
            f"--report {folder}: cannot be written ({exc.strerror})",
            help="name a folder that you may write to",
            exit_code=2,
        ) from exc


class _Progress:
    """On standard error: one line that counts up on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._said_s = time.monotonic()
        self._shown = False

    def __call__(self, done: int, of: int) -> None:
        now_s = time.monotonic()
        if self._terminal and done == of and self._shown:
            click.echo("\r\033[K", nl=False, err=True)
        elif now_s - self._said_s >= (0.2 if self._terminal else _EVERY_S):
            self._said_s, self._shown = now_s, True
            text = f"diagd: read {done} of {of} dumps"
            click.echo(f"\r{text}" if self._terminal else text, nl=not self._terminal, err=True)
