"""`diagd dump`."""

import contextlib
import itertools
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagd.daemon.cli.run import Seconds
from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from diagd.daemon.agent.dump import DumpSummary
    from diagd.daemon.cli.choices import Choice

_NOTHING = "`diagd dump --pid PID…` dumps any Python process"
_NOT_ROOT = "of another user's processes only root sees the environment by which ranks are known: sudo diagd dump"
_MAX_RANK = 1_000_000
# Of a job that was started without diagd; the rest of the parts only diagd's own probes can give.
_SEEN_FROM_OUTSIDE = ("stacks", "process")


class Ranks(click.ParamType[frozenset[int] | None]):
    """`all`, or numbers and ranges such as 0,3-7; None for all."""

    name = "ranks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int] | None:
        """From text."""
        if value is None or value == "all" or isinstance(value, frozenset):
            return value if isinstance(value, frozenset) else None
        found: set[int] = set()
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if first > last or last > _MAX_RANK:
                self.fail(f"{part!r} is neither a rank nor a range of ranks, such as 0,3-7", param, ctx)
            found.update(range(first, last + 1))
        return frozenset(found)


@click.command("dump")
@click.option("--rank", "ranks", type=Ranks(), default="all", metavar="all|0,3-7", help="Which ranks. [default: all]")
@click.option("--job", metavar="NAME", help="Which job; needed only where several run here.")
@click.option(
    "--pid", "pids", type=click.IntRange(1), multiple=True, metavar="PID", help="These processes; repeatable."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write to this folder. [default: a new one in the working directory]",
)
@click.option(
    "--limit",
    type=Seconds(),
    metavar="SECONDS",
    help="Take so long at most. [default: 2.5, and 10 for the Python stacks on a busy machine]",
)
@click.argument("more", nargs=-1, metavar="[PID]…")
def command(
    ranks: frozenset[int] | None, job: str | None, pids: tuple[int, ...], output: Path | None, limit: float | None,
    more: tuple[str, ...],
) -> int:  # fmt: skip
    """Write what each rank does to a folder: stacks, collectives, memory, process state. The job is not disturbed.

    Finds the running job by itself, also one that was started without diagd: that shows less, but the stacks.

    \b
    Examples:
      diagd dump
      diagd dump --rank 0,3-7 -o hang-at-3am
      diagd dump --pid 4711 4712

    Exit code 3: the dump is partial; the summary says what is missing and why.
    """
    from diagd.daemon.agent.dump import LIMIT_S, PATIENCE, collect_dump

    found = _targets([*pids, *map(_pid, more)], job)
    chosen = [t for t in found.targets if ranks is None or t.rank in ranks]
    absent = sorted((ranks or frozenset()) - {t.rank for t in chosen if t.rank is not None})
    if not chosen:
        known = ", ".join(str(t.rank) for t in found.targets if t.rank is not None)
        raise DiagdError("none of these ranks runs here", help=f"the ranks here are {known or 'none'}", exit_code=4)
    folder = _folder(output, found.name)
    click.echo(f"dumping {len(chosen)} process{'es' * (len(chosen) != 1)} of {found.what}", err=True)
    try:
        summary = collect_dump(
            chosen, folder, lambda text: click.echo(f"  {text}", err=True),
            limit_s=limit or LIMIT_S, patience=1.0 if limit else PATIENCE,
        )  # fmt: skip
    except OSError as exc:
        raise _unwritable(folder, exc) from exc
    except KeyboardInterrupt:
        raise DiagdError(
            "interrupted: the dump is not whole", help=f"what was written until then: {folder}", exit_code=130
        ) from None
    return _told(summary, absent, found.outside)


def _pid(word: str) -> int:
    if not word.isdecimal():
        raise click.UsageError(f"{word!r} is no process id. To choose a job: --job {word}; ranks: --rank {word}")
    return int(word)


def _told(summary: "DumpSummary", absent: Sequence[int], outside: bool) -> int:
    for group in summary.groups.split("; "):
        click.echo(group)
    from diagd.daemon.agent.dump import NO_TIME

    missing = [(rank, part) for rank in summary.ranks for part in rank.missing]
    if outside:
        missing = [(rank, part) for rank, part in missing if part in (*_SEEN_FROM_OUTSIDE, "the rest")]
    for rank, part in missing:
        click.echo(f"{rank.label}: no {part}: {rank.missing[part]}", err=True)
    if any(rank.missing[part].startswith(NO_TIME) for rank, part in missing):
        click.echo("more time: diagd dump --limit 30", err=True)
    for number in absent:
        click.echo(f"rank {number}: does not run here", err=True)
    click.echo(f"{summary.folder}")
    click.echo(f"done in {summary.took_s:.1f} s; begin with {summary.folder / 'summary.txt'}", err=True)
    return 3 if missing or absent else 0


def _targets(pids: Sequence[int], name: str | None) -> "Choice":
    from diagd.daemon.agent.dump import targets_of_pids, targets_of_run
    from diagd.daemon.cli.choices import Choice, choices, listed
    from diagd.daemon.cli.jobs import running_jobs

    if pids:
        gone = [pid for pid in pids if not Path(f"/proc/{pid}").is_dir()]
        if gone:
            raise DiagdError(f"there is no process {', '.join(map(str, gone))}", exit_code=4)
        watched = [target for job in running_jobs() for target in targets_of_run(job.run_dir)]
        targets = targets_of_pids(pids, watched)
        return Choice("pids", "your choice", targets, any(target.box is None for target in targets))
    found = choices()
    if name is not None:
        begun = [known for known in found if known.startswith(name)] if name else []
        if name not in found and len(begun) != 1:
            raise DiagdError(f"no running job is called {name}", help=listed(found) or _nothing(), exit_code=4)
        return found[name if name in found else begun[0]]
    if not found:
        raise DiagdError("no distributed job runs on this machine, as far as you may see", help=_nothing(), exit_code=4)
    if len(found) > 1:
        raise DiagdError("several jobs run here: say which", help=listed(found), exit_code=2)
    return next(iter(found.values()))


def _nothing() -> str:
    from diagd.daemon.cli.choices import lone_trainings

    return lone_trainings() or (f"{_NOTHING}\n{_NOT_ROOT}" if os.geteuid() else _NOTHING)


def _folder(output: Path | None, name: str) -> Path:
    """The folder to write to, made and held: two dumps into one would mix.

    Raises:
        DiagdError: It cannot be made, or has a dump or is getting one.
    """
    from diagd.daemon.cli.reportdir import lock

    try:
        folder = _fresh_folder(name) if output is None else output.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        free = lock(folder)
    except OSError as exc:
        raise _unwritable(output or Path.cwd(), exc) from exc
    why = "holds a dump already" if (folder / "summary.txt").exists() else "" if free else "gets another dump just now"
    if why:
        raise DiagdError(f"{folder} {why}", help="name another folder, or leave -o out", exit_code=2)
    return folder


def _unwritable(folder: Path, exc: OSError) -> DiagdError:
    return DiagdError(
        f"{folder}: cannot be written: {exc.strerror}", help="name another: diagd dump -o DIR", exit_code=2
    )


def _fresh_folder(name: str) -> Path:
    """A new one: of two dumps in the same second, too, each has its own."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    base = Path.cwd() / f"diagd-dump-{plain}-{time.strftime('%H%M%S')}"
    for number in itertools.count(1):
        folder = base if number == 1 else Path(f"{base}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError  # the numbers do not end
