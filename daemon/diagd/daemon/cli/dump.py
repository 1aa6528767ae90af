"""`diagd dump`."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from diagd.daemon.agent.dump import DumpSummary
    from diagd.daemon.agent.dump_parts import Target
    from diagd.daemon.agent.outside import OutsideRank

_NOTHING = """\
`diagd dump --pid PID…` dumps any Python process
of another user's processes only root sees the environment by which ranks are known: sudo diagd dump"""
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


@click.command("dump", short_help="Collect all that can be known of a job's ranks, also of one run without diagd.")
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
@click.argument("more", nargs=-1, metavar="[PID]…")
def command(
    ranks: frozenset[int] | None, job: str | None, pids: tuple[int, ...], output: Path | None, more: tuple[str, ...]
) -> int:
    """Write what each rank does to a folder: stacks, collectives, memory, process state. The job is not disturbed.

    Finds the running job by itself, also one that was started without diagd: that shows less, but the stacks.

    \b
    Examples:
      diagd dump
      diagd dump --rank 0,3-7 -o hang-at-3am
      diagd dump --pid 4711 4712

    Exit code 3: the dump is partial; the summary says what is missing and why.
    """
    from diagd.daemon.agent.dump import collect_dump

    found = _targets([*pids, *map(_pid, more)], job)
    chosen = [t for t in found.targets if ranks is None or t.rank in ranks]
    absent = sorted((ranks or frozenset()) - {t.rank for t in chosen})
    if not chosen:
        known = ", ".join(str(t.rank) for t in found.targets)
        raise DiagdError("none of these ranks runs here", help=f"the ranks here are {known}", exit_code=4)
    folder = (output or _fresh_folder(found.name)).absolute()
    click.echo(f"dumping {len(chosen)} process{'es' * (len(chosen) != 1)} of {found.what}", err=True)
    try:
        summary = collect_dump(chosen, folder, lambda text: click.echo(f"  {text}", err=True))
    except OSError as exc:
        raise DiagdError(
            f"{folder}: cannot be written: {exc.strerror}", help="name another: diagd dump -o DIR"
        ) from exc
    return _told(summary, absent, found.outside)


def _pid(word: str) -> int:
    if not word.isdecimal():
        raise click.UsageError(f"{word!r} is no process id. To choose a job: --job {word}; ranks: --rank {word}")
    return int(word)


def _told(summary: "DumpSummary", absent: Sequence[int], outside: bool) -> int:
    for group in summary.groups.split("; "):
        click.echo(group)
    missing = [(rank, part) for rank in summary.ranks for part in rank.missing]
    if outside:
        missing = [(rank, part) for rank, part in missing if part in (*_SEEN_FROM_OUTSIDE, "the rest")]
    for rank, part in missing:
        click.echo(f"{rank.label}: no {part}: {rank.missing[part]}", err=True)
    for number in absent:
        click.echo(f"rank {number}: does not run here", err=True)
    click.echo(f"{summary.folder}")
    click.echo(f"done in {summary.took_s:.1f} s; begin with {summary.folder / 'summary.txt'}", err=True)
    return 3 if missing or absent else 0


class _Found:
    """The processes to dump, and what they are called."""

    def __init__(self, name: str, what: str, targets: "Sequence[Target]", outside: bool) -> None:
        self.name = name
        self.what = what
        self.targets = targets
        self.outside = outside


def _targets(pids: Sequence[int], name: str | None) -> _Found:
    from diagd.daemon.agent.dump import targets_outside
    from diagd.daemon.agent.outside import find_ranks

    if pids:
        gone = [pid for pid in pids if not Path(f"/proc/{pid}").is_dir()]
        if gone:
            raise DiagdError(f"there is no process {', '.join(map(str, gone))}", exit_code=4)
        return _Found("pids", "your choice", targets_outside(find_ranks(pids=list(pids))), True)
    choices = _choices()
    if name is not None:
        choices = {known: found for known, found in choices.items() if known == name}
        if not choices:
            raise DiagdError(f"no running job is called {name}", help=_listed(_choices()) or _NOTHING, exit_code=4)
    if not choices:
        raise DiagdError("no distributed job runs on this machine, as far as you may see", help=_NOTHING, exit_code=4)
    if len(choices) > 1:
        raise DiagdError("several jobs run here: say which", help=_listed(choices), exit_code=2)
    return next(iter(choices.values()))


def _choices() -> dict[str, _Found]:
    """The jobs that run here by name: first those under diagd, then what else looks like ranks."""
    from diagd.daemon.agent.dump import targets_of_run, targets_outside
    from diagd.daemon.agent.outside import find_ranks
    from diagd.daemon.cli.jobs import job_name, running_jobs

    found: dict[str, _Found] = {}
    seen: set[int] = set()
    for job in running_jobs():
        if targets := targets_of_run(job.run_dir):
            found[_free_name(job_name(job), found)] = _Found(job_name(job), f"job {job_name(job)}", targets, False)
            seen.update(target.pid for target in targets)
    others: dict[str, list[OutsideRank]] = {}
    for rank in find_ranks():
        if rank.pid not in seen:
            others.setdefault(rank.job or "unnamed", []).append(rank)
    for name, ranks in others.items():
        if name in found and any(rank.run_dir for rank in ranks):
            continue  # of a job that diagd watches: a process without a box, not a job of its own
        what = f"job {name}, which was started without diagd"
        found[_free_name(name, found)] = _Found(name, what, targets_outside(ranks), True)
    return found


def _free_name(name: str, taken: dict[str, _Found]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    return free


def _listed(choices: dict[str, _Found]) -> str:
    return "\n".join(f"--job {name}    {len(found.targets)} ranks, {found.what}" for name, found in choices.items())


def _fresh_folder(name: str) -> Path:
    """A name that is not taken yet."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    base = Path(f"diagd-dump-{plain}-{time.strftime('%H%M%S')}")
    number, folder = 1, base
    while folder.exists():
        number += 1
        folder = Path(f"{base}-{number}")
    return folder
