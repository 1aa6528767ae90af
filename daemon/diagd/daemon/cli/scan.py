"""`diagd scan`."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagd.daemon.cli.analyze import printable, tell

if TYPE_CHECKING:
    from diagd.daemon.analyze.scan import Scanned

NO_FAULT = "no fault found"
_PIPED = Path("-")
_EVERY_S = 5.0  # a line of progress where no terminal shows it


@click.command("scan")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH…")
@click.option("--json", "as_json", is_flag=True, help="The whole report, as report.json has it.")
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write report.json and report.html to this folder.",
)
@click.option("--job", metavar="NAME", help="Of several runs, this one alone.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="diagd.toml, for its [metrics] names.",
)
def command(
    paths: tuple[Path, ...], as_json: bool, report: Path | None, job: str | None, config: tuple[Path, ...]
) -> int:
    """Say what is wrong with a training, from what it has logged; it need not run any more, nor have run under diagd.

    \b
    PATH is one of, or a folder of:
      logs as they were printed (also with progress bars, colours, several ranks; .gz)
      a JSON object a line, or a CSV
      TensorBoard's event files
      transformers' trainer_state.json
      a wandb run that was made offline

    - is what is piped into it. Files of one folder that belong together are one run. What cannot be read is passed
    over, and said.

    \b
    Exit code: 0 no fault found; 1 a fault was found; 2 no metrics; 3 no fault found, and not all could be read.
    """
    from diagd.daemon.analyze.scan import scan
    from diagd.daemon.config.settings import load

    names = load(os.environ, config).metrics.names
    with _files(paths) as files:
        found = scan(files, names=names, progress=_Progress())
    return tell(found, _lines, job, report, "there are the runs", as_json=as_json)


@contextmanager
def _files(paths: tuple[Path, ...]) -> Iterator[list[Path]]:
    """The paths, where one of them is `-` with what standard input holds in its place: it is read more than once."""
    if _PIPED not in paths:
        yield list(paths)
        return
    if sys.stdin.isatty():
        raise click.UsageError("- reads a log that is piped into it, as in `ssh node cat train.log | diagd scan -`")
    with tempfile.TemporaryDirectory(prefix="diagd-scan-") as folder:
        kept = Path(folder) / "stdin"
        with kept.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield [kept if path == _PIPED else path for path in paths]


def _lines(found: "Scanned") -> list[str]:
    from diagd.daemon.report.text import verdict_lines

    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    incidents = found.report["incidents"]
    lines = [line for incident in incidents for line in verdict_lines(incident, colour=colour)]
    faults = sum(incident["peak_severity"] != "info" for incident in incidents)
    lines.append(f"{printable(found.headline)}: {_count(faults, len(incidents) - faults)}.")
    return [*lines, *(f"  note: {printable(note)}." for note in found.report["notes"])]


def _count(faults: int, notices: int) -> str:
    found = f"{faults} fault{'s' * (faults != 1)} found" if faults else NO_FAULT
    return found + (f", {notices} thing{'s' * (notices != 1)} worth knowing" if notices else "")


class _Progress:
    """On standard error: one line that counts up on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._said_s = time.monotonic()
        self._shown = False

    def __call__(self, done: int, of: int) -> None:
        now_s = time.monotonic()
        if done >= of:
            if self._terminal and self._shown:
                click.echo("\r\033[K", nl=False, err=True)
        elif now_s - self._said_s >= (0.2 if self._terminal else _EVERY_S):
            self._said_s, self._shown = now_s, True
            text = f"diagd: read {done / 1e6:,.0f} of {of / 1e6:,.0f} MB"
            click.echo(f"\r{text}" if self._terminal else text, nl=not self._terminal, err=True)
