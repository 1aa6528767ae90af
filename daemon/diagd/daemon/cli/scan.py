"""`diagd scan`."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagd.daemon.cli.analyze import printable, tell
from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from diagd.daemon.analyze.scan import Scanned

NO_FAULT = "no fault found"
_PIPED, _STDIN = Path("-"), (Path("/dev/stdin"), Path("/dev/fd/0"), Path("/proc/self/fd/0"))
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

    - is what is piped into it; a FIFO, or what <(…) gives, is read to its end. Files of one folder that belong together
    are one run. What cannot be read is passed over, and said.

    \b
    Exit code: 0 no fault found, things that are only worth knowing (info) aside; 1 a fault was found, also one that was
      over in the end; 2 no metrics; 3 no fault found, and not all could be read.
    """
    from diagd.daemon.analyze.scan import scan
    from diagd.daemon.config.settings import load

    names = load(os.environ, config).metrics.names
    with _files(paths) as files:
        found = scan(files, names=names, progress=_Progress())
    return tell(found, _lines, job, report, "there are the runs", as_json=as_json)


@contextmanager
def _files(paths: tuple[Path, ...]) -> Iterator[list[Path]]:
    """The paths, with files in the place of pipes that hold what came out of these: logs are read more than once."""
    piped = [path for path in dict.fromkeys(paths) if _is_piped(path)]
    if not piped:
        yield list(paths)
        return
    with tempfile.TemporaryDirectory(prefix="diagd-scan-") as folder:
        kept = {path: _kept(path, Path(folder) / str(number)) for number, path in enumerate(piped)}
        try:
            yield [kept.get(path, path) for path in paths]
        except DiagdError as exc:
            for path, file in kept.items():
                exc.message, exc.help = (text.replace(str(file), str(path)) for text in (exc.message, exc.help))
            raise


def _is_piped(path: Path) -> bool:
    """Whether it is `-`, a FIFO, what a shell makes of `<(…)`, or standard input by another name.

    Raises:
        UsageError: Nothing comes out of it: a terminal, or a device.
    """
    if path == _PIPED or path in _STDIN:
        if sys.stdin.isatty():
            raise click.UsageError(
                f"{path} reads a log that is piped into it, as in `ssh node cat train.log | diagd scan -`"
            )
        return path == _PIPED or not path.is_file()
    if path.is_char_device() or path.is_block_device() or path.is_socket():
        raise click.UsageError(
            f"{path} is a device or a socket: name a file, a folder or a pipe, or - for standard input"
        )
    return path.is_fifo()


def _kept(path: Path, folder: Path) -> Path:
    """A file with all that comes out of the pipe, in a folder of its own: it belongs to no other's run."""
    own = path == _PIPED or path in _STDIN
    nameless = path.is_relative_to("/dev") or path.is_relative_to("/proc")
    folder.mkdir()
    kept = folder / ("stdin" if own else f"pipe-{path.name}" if nameless else path.name)
    with kept.open("wb") as file, nullcontext(sys.stdin.buffer) if own else path.open("rb") as source:
        shutil.copyfileobj(source, file)
    return kept


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
