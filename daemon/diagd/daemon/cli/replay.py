"""`diagd replay`."""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagd.daemon.cli.run import Seconds
from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from diagd.daemon.incidents.incident import Incident
    from diagd.daemon.record.record import RecordReader
    from diagd.daemon.state.job import JobState

USAGE, PARTIAL = 2, 3


@click.command("replay")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--speed",
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="X",
    help="So many times as fast as it was: 1 is real time. [default: as fast as can be]",
)
@click.option(
    "--hang-after", type=Seconds(), metavar="SECONDS", help="Judge with this patience, not with the recorded one."
)
@click.option("--json", "as_json", is_flag=True, help="The report as it is at the end, and no verdicts on the way.")
def command(file: Path, speed: float | None, hang_after: float | None, as_json: bool) -> int:
    """Run the detectors of today over a run that `diagd run --record FILE` has kept.

    Says each verdict as it came, with the seconds since the recording's begin before it. A recording that was cut off
    is judged as far as it goes.

    \b
    Exit code: 0 no fault was found, things that are only worth knowing (info) aside; 1 one was (open or over, warnings
      too); 2 no recording; 3 none was found, but the recording is damaged or ends before the job does.
    """
    from diagd.daemon.aggregator.reporting import job_report
    from diagd.daemon.record.record import RecordReader

    jobs: dict[str, tuple[JobState, Sequence[Incident]]] = {}
    player = _Player(speed, quiet=as_json)
    reader = RecordReader(file)
    for state, incidents in _states(reader, file):
        if hang_after:
            state.hang_after_s = hang_after
        jobs[state.job_id] = state, incidents
        player.shows(state, incidents)
    if not jobs:
        help = "" if reader.damage else "nothing had been reported yet"
        raise DiagdError(f"{file}: {reader.damage or 'the recording is empty'}", help=help, exit_code=USAGE)
    if as_json:
        reports = [job_report(state, incidents) for state, incidents in jobs.values()]
        for report in reports:
            report["notes"] += [reader.damage] * bool(reader.damage)
        click.echo(json.dumps(reports[0] if len(reports) == 1 else reports, indent=2))
    else:
        player.ends(jobs, reader.damage)
    return exit_code(jobs.values(), damaged=bool(reader.damage))


def exit_code(jobs: "Iterable[tuple[JobState, Sequence[Incident]]]", *, damaged: bool) -> int:
    """Of a recording's jobs; things that are only worth knowing are no faults."""
    from diagd.daemon.detectors.finding import Severity

    played = list(jobs)
    if any(incident.peak_severity != Severity.INFO for _, incidents in played for incident in incidents):
        return 1
    return PARTIAL if damaged or any(state.ended_s is None for state, _ in played) else 0


def _states(reader: "RecordReader", file: Path) -> "Iterator[tuple[JobState, Sequence[Incident]]]":
    from diagd.daemon.aggregator.replay import replay
    from diagd.daemon.record.record import NotARecord

    try:
        yield from replay(reader)
    except (OSError, NotARecord) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else "this is no recording of diagd's"
        raise DiagdError(
            f"{file}: {reason}", help="name a file that `diagd run --record FILE` wrote", exit_code=USAGE
        ) from exc


class _Player:
    """Says what is news, at the pace that was asked for."""

    def __init__(self, speed: float | None, *, quiet: bool) -> None:
        from diagd.daemon.report.text import verdict_lines
        from diagd.daemon.watch.announcer import Announcer

        self._announcer = Announcer
        self._speed = speed
        self._quiet = quiet
        self._began_s = 0.0
        self._now_s = 0.0
        self._started_s = time.monotonic()
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._verdict = partial(verdict_lines, colour=colour)
        self._announcers: dict[str, Announcer] = {}

    def shows(self, state: "JobState", incidents: "Sequence[Incident]") -> None:
        """One moment of a job."""
        self._began_s = self._began_s or state.now_s
        self._now_s = state.now_s
        if self._speed is not None:
            due_s = self._started_s + (self._now_s - self._began_s) / self._speed
            time.sleep(max(due_s - time.monotonic(), 0.0))
        if not self._quiet:
            if state.job_id not in self._announcers:
                self._announcers[state.job_id] = self._announcer(self._verdict, self._write, state.hang_after_s)
            self._announcers[state.job_id].consider(incidents, self._now_s)

    def ends(self, jobs: "dict[str, tuple[JobState, Sequence[Incident]]]", damage: str) -> None:
        """The recording is over, or what can be read of it."""
        for job_id, (state, incidents) in jobs.items():
            lasted_s = state.now_s - self._began_s
            count = f"{len(incidents)} incident{'s' * (len(incidents) != 1)}" if incidents else "no incident"
            cut = damage or ("" if state.ended_s is not None else "the recording ends before the job does")
            ranks = f"{len(state.ranks())} rank{'s' * (len(state.ranks()) != 1)}"
            click.echo(f"job {job_id}: {ranks}, {lasted_s:.0f} s; {count}{f'; {cut}' if cut else ''}.")

    def _write(self, text: str) -> None:
        click.echo(f"+{self._now_s - self._began_s:.1f} s {text}", nl=False)
