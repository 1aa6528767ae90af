"""`diagd selftest`."""

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from diagd.daemon.selftest.drills import Drill
    from diagd.daemon.selftest.running import Result
    from diagd.daemon.selftest.trainer import Trainer

SCHEMA = "diagd.selftest/1"
_NAME_WIDTH = 10


class Names(click.ParamType["tuple[Drill, ...]"]):
    """Names of drills, separated by commas."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "tuple[Drill, ...]":
        """From text; in the table's order."""
        from diagd.daemon.selftest.drills import DRILLS

        if isinstance(value, tuple):
            return value
        wanted = [name.strip() for name in str(value).split(",")]
        known = [drill.name for drill in DRILLS]
        if unknown := [name for name in wanted if name not in known]:
            self.fail(f"{unknown[0]!r} is none of {', '.join(known)}", param, ctx)
        return tuple(drill for drill in DRILLS if drill.name in wanted)


@click.command("selftest")
@click.option("--only", type=Names(), metavar="NAME,…", help="These alone: clean, slow, hang, gil, data, stop, …")
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PATH",
    help="The Python that has torch. [default: the first that has it, on PATH or beside diagd]",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(only: "tuple[Drill, ...] | None", python: Path | None, as_json: bool) -> int:
    """See on this machine that diagd finds what it should, after an upgrade say.

    Plants each fault of `diagd run --inject` into a small job of its own (2 or 3 ranks, gloo, on the CPU), looks
    whether the right verdict on the right rank comes, and whether nothing is said of a healthy job. Takes about a
    minute, and leaves nothing behind, at Ctrl-C too.

    \b
    Exit code: 0 all was right; 1 something was wrong; 2 wrong usage; 4 no Python with torch was found.
    """
    from diagd.daemon.selftest.drills import DRILLS
    from diagd.daemon.selftest.session import run_drills
    from diagd.daemon.selftest.trainer import find_trainer

    trainer = find_trainer(python)
    if not as_json:
        click.echo(f"Python {trainer.python} with torch {trainer.torch} ({trainer.path})")
    began_s = time.monotonic()
    results, progress = [], _Progress()
    with _noting_signals(progress), closing(run_drills(only or DRILLS, trainer, progress)) as coming:
        for result in coming:
            progress.clear()
            results.append(result)
            if not as_json:
                click.echo("\n".join(_lines(result, trainer)))
    progress.clear()
    took_s, right = time.monotonic() - began_s, sum(result.right for result in results)
    if as_json:
        click.echo(json.dumps(_document(trainer, results, took_s), indent=2))
    else:
        click.echo(f"{right} of {len(results)} right, in {took_s:.0f} s")
    return int(right < len(results))


class _Progress:
    """What runs at the moment, in a line that is written over; nothing where that is no terminal."""

    def __init__(self) -> None:
        self.signal = 0
        self._terminal = sys.stderr.isatty()
        self._began_s = time.monotonic()
        self._shown = ""

    def __call__(self, names: Sequence[str]) -> None:
        if self.signal:
            self.clear()
            raise KeyboardInterrupt if self.signal == signal.SIGINT else SystemExit(128 + self.signal)
        text = f"{time.monotonic() - self._began_s:3.0f} s  {', '.join(names)} …"
        if self._terminal and text != self._shown:
            self._shown = text
            click.echo(f"\r\033[K{text}", nl=False, err=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._terminal:
            self._shown = ""
            click.echo("\r\033[K", nl=False, err=True)


@contextmanager
def _noting_signals(progress: _Progress) -> Iterator[None]:
    """Have signals end it between two looks alone: one that came while a job starts or ends would leave that behind."""

    def note(number: int, _: Any) -> None:
        progress.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lines(result: "Result", trainer: "Trainer") -> list[str]:
    from diagd.daemon.selftest.judge import expected

    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    state = click.style(f"{'ok' if result.right else 'wrong':<6}", fg="green" if result.right else "red")
    head = f"{state if colour else click.unstyle(state)}{result.drill.name:<{_NAME_WIDTH}}"
    if result.right:
        after = f"{result.verdict_s:.1f} s after the fault" if result.verdict_s is not None else ""
        return [f"{head}{result.said:<40} {after}".rstrip()]
    return [
        f"{head}said {result.said}; expected {expected(result.drill)}",
        *(f"        {line}" for line in result.tail),
        f"        again: {_again(result, trainer)}",
    ]


def _again(result: "Result", trainer: "Trainer") -> str:
    from diagd.daemon.selftest.running import by_hand

    return shlex.join(["diagd", *by_hand(result.drill, trainer)])


def _document(trainer: "Trainer", results: Sequence["Result"], took_s: float) -> dict[str, Any]:
    from diagd.daemon.selftest.judge import expected

    return {
        "schema": SCHEMA,
        "python": {"path": trainer.path, "version": trainer.python, "torch": trainer.torch},
        "right": all(result.right for result in results),
        "seconds": round(took_s, 2),
        "drills": [
            {
                "name": result.drill.name,
                "fault": result.drill.fault or None,
                "right": result.right,
                "expected": expected(result.drill),
                "said": result.said,
                "verdict_seconds": round(result.verdict_s, 2) if result.verdict_s is not None else None,
                "seconds": round(result.seconds, 2),
                "output": list(result.tail),
            }
            for result in results
        ],
    }
