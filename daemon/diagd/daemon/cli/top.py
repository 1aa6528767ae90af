"""`diagd top`."""

import shutil
import sys
from typing import TYPE_CHECKING

import click

from diagd.daemon.cli.run import Seconds

if TYPE_CHECKING:
    from diagd.daemon.agent.discovery import Job

_PLAIN_WIDTH = 120  # where there is no terminal to fit


@click.command("top")
@click.option("--job", metavar="NAME", help="Which job; needed only where several run here.")
@click.option(
    "--interval",
    type=Seconds(),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look; less often where that would take more than a twentieth of a core.",
)
@click.option("--once", is_flag=True, help="Print one look and end; so it is also where there is no terminal.")
def command(job: str | None, interval: float, once: bool) -> None:
    """Watch the ranks of a running job: state, step, phase, wait and memory, who is slow, and what is wrong.

    Up to 64 ranks have a row each, more have a cell each. ? shows the keys: q quits, arrows choose a rank, Enter
    shows its stacks, d writes a dump, i shows the incidents, / jumps to a rank.

    \b
    Examples:
      diagd top
      diagd top --once | less
    """
    from diagd.daemon.cli.jobs import find_job, job_name

    found = find_job(job)
    reason = "" if once else _no_terminal()
    if not once and not reason:
        reason = _live(found, job_name(found), interval)
        if not reason:
            return
    if reason and sys.stdout.isatty():
        click.echo(f"diagd: one look only: {reason}", err=True)
    _print_once(found)


def _no_terminal() -> str:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "standard input and output are not both a terminal"
    return ""


def _live(found: "Job", name: str, interval_s: float) -> str:
    """Empty once a person has seen enough; else why nothing can be shown live."""
    try:
        from diagd.daemon.cli.jobview.screen import NoScreen
        from diagd.daemon.cli.jobview.session import Session
    except ImportError as exc:  # a Python that was built without curses
        return f"this Python has no curses ({exc})"
    try:
        words = Session(found, name, interval_s).run()
    except NoScreen as exc:
        return str(exc)
    for word in words:
        click.echo(f"diagd: {word}")
    return ""


def _print_once(found: "Job") -> None:
    from diagd.daemon.cli.jobview.frame import plain_lines
    from diagd.daemon.cli.jobview.snapshot import Snapshot
    from diagd.daemon.cli.jobview.source import read_status
    from diagd.daemon.cli.jobview.text import plain

    width = shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns
    for spans in plain_lines(Snapshot.of(read_status(found)), width):
        click.echo(plain(spans))
