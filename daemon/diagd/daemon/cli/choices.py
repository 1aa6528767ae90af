"""What a person may mean by "the job" of `diagd dump`: jobs under diagd, jobs without it, and lone trainings."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagd.daemon.agent.dump_context import Target
    from diagd.daemon.agent.outside import OutsideRank

_SHOWN_PIDS = 8
_SHOWN_PROCESSES = 8
_COMMAND_WIDTH = 100
# torchrun's run id where nobody gave one: no name, and that of others too.
_NO_NAMES = ("", "none")


@dataclass(frozen=True, slots=True)
class Choice:
    """The processes to dump, and what they are called."""

    name: str
    what: str
    targets: "Sequence[Target]"
    outside: bool
    how: str = ""  # it runs, where diagd does not watch it


def choices() -> dict[str, Choice]:
    """The jobs that run here by name: first those under diagd, then what else looks like ranks."""
    from diagd.daemon.agent.dump import targets_of_run
    from diagd.daemon.agent.outside import find_ranks
    from diagd.daemon.cli.jobs import job_name, running_jobs

    found: dict[str, Choice] = {}
    seen: set[int] = set()
    jobs = running_jobs()
    names = [job_name(job) for job in jobs]
    for job, named in zip(jobs, names, strict=True):
        if targets := targets_of_run(job.run_dir):
            name = named if names.count(named) == 1 else job.job  # of one name, the folder's is one job's alone
            found[_free_name(name, found)] = Choice(name, f"job {name}", targets, False)
            seen.update(target.pid for target in targets)
    return _with_others(found, [rank for rank in find_ranks() if rank.pid not in seen])


def _with_others(found: dict[str, Choice], ranks: "Iterable[OutsideRank]") -> dict[str, Choice]:
    from diagd.daemon.agent.dump import targets_outside

    others: dict[tuple[str, str], list[OutsideRank]] = {}
    for rank in ranks:
        key = ("unnamed", rank.meets_at or str(rank.parent)) if rank.job in _NO_NAMES else (rank.job, "")
        others.setdefault(key, []).append(rank)
    for (name, _), members in others.items():
        if name in found and any(rank.run_dir for rank in members):
            continue  # of a job that diagd watches: a process without a box, not a job of its own
        free = _free_name(name, found)
        began = any(rank.run_dir for rank in members)
        what = "whose ranks have told diagd nothing yet" if began else "which was started without diagd"
        how = "has told diagd nothing yet" if began else "without diagd"
        found[free] = Choice(name, f"job {free}, {what}", targets_outside(members), True, how)
    return found


def _free_name(name: str, taken: Mapping[str, Choice]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    return free


def listed(found: Mapping[str, Choice]) -> str:
    """A line for each: how to choose it, and by what a person knows it."""
    return "\n".join(f"--job {shlex.quote(name)}    {_described(choice)}" for name, choice in found.items())


def _described(choice: Choice) -> str:
    count = len(choice.targets)
    pids = ",".join(str(target.pid) for target in choice.targets[:_SHOWN_PIDS]) + ",…" * (count > _SHOWN_PIDS)
    how = f", {choice.how}" if choice.how else ""
    label = f"{count} rank{'s' * (count != 1)}{how}, pid{'s' * (count != 1)} {pids}"
    return f"{label}: {_short(choice.targets[0].command)}".removesuffix(": ")


def without_diagd() -> str:
    """Ranks and trainings that run here and that no diagd watches, with what to do; empty where there are none."""
    from diagd.daemon.agent.outside import find_ranks

    if found := _with_others({}, [rank for rank in find_ranks() if rank.run_dir is None]):
        begun = "a job runs" if len(found) == 1 else f"{len(found)} jobs run"
        shown = "\n".join(f"  diagd dump {line}" for line in listed(found).splitlines())
    elif shown := "\n".join(f"  {line}" for line in _lone(watched=False)):
        begun = "a Python with torch in it runs" if "\n" not in shown else "Pythons with torch in them run"
    return f"{begun} here without diagd, so nothing judges it; to see where it is:\n{shown}" if shown else ""


def lone_trainings() -> str:
    """Python processes with torch in them, a line for each; empty where there are none or none may be looked into."""
    return "\n".join(_lone(watched=True))


def _lone(*, watched: bool) -> list[str]:
    from diagd.daemon.agent.outside import find_trainings

    found = [(pid, command) for pid, command, run_dir in find_trainings() if watched or not run_dir]
    return [f"diagd dump --pid {pid}    {_short(command)}" for pid, command in found[:_SHOWN_PROCESSES]]


def _short(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= _COMMAND_WIDTH else line[: _COMMAND_WIDTH - 1] + "…"
