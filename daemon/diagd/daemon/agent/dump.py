"""Write all that can be known of a job's ranks into a folder, within seconds, whatever state they are in."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from diagd.daemon.agent import grouping
from diagd.daemon.agent.discovery import Box, BoxFolder
from diagd.daemon.agent.dump_context import Context, NothingToWrite, NotThere, Target, stat_of
from diagd.daemon.agent.dump_parts import NATIVE, PARTS, Part
from diagd.daemon.agent.outside import OutsideRank, described
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.agent.pyspy import NoStack
from diagd.daemon.agent.recorder import NoRecorder
from diagd.daemon.ranks import rank_ranges
from diagd.daemon.state.model import Stack

LIMIT_S = 2.5  # what a dump takes on a machine that is not busy
PATIENCE = 4.0  # times as long for what is at the heart of it, where one is; not for native stacks
NO_TIME = "there was no time for it"
_WORKERS = 8


@dataclass(slots=True)
class RankDump:
    """What was had of one rank."""

    rank: int | None
    pid: int
    label: str
    state: str = ""
    place: str = ""  # where its main thread is
    parts: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # part -> why
    absent: list[str] = field(default_factory=list)  # parts of which there is nothing in it


@dataclass(frozen=True, slots=True)
class DumpSummary:
    """What a dump holds."""

    folder: Path
    ranks: tuple[RankDump, ...]
    groups: str  # "ranks 0-2,4-7: …; rank 3: …"
    took_s: float

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not any(rank.missing for rank in self.ranks)

    @property
    def text(self) -> str:
        """The summary for a person."""
        count = len(self.ranks)
        lines = [
            f"dump of {count} process{'es' * (count != 1)} in {self.took_s:.1f} s: {self.folder}",
            "",
            "Where they are:",
        ]
        lines += [f"  {group}" for group in self.groups.split("; ") if group]
        lines += ["", "What was written:"]
        for rank in self.ranks:
            who = f"{rank.label} (pid {rank.pid}, " if rank.rank is not None else f"pid {rank.pid} ("
            lines.append(f"  {who}state {rank.state or 'gone'}): {', '.join(rank.parts)}")
            lines += [f"    no {part}: {why}" for part, why in rank.missing.items()]
        told = len(list((self.folder / "flight_recorder").glob("rank_*")))
        if told:
            partly = "--allow-incomplete-ranks " if told < count else ""
            where = self.folder / "flight_recorder"
            lines += ["", f"For torch's own analysis: torchfrtrace {partly}--prefix rank_ {where}"]
        return "\n".join(lines) + "\n"


def targets_of_run(run_dir: Path, ranks: Iterable[int] | None = None, proc: Procfs | None = None) -> list[Target]:
    """The ranks with a box in a run directory; default: all."""
    wanted = None if ranks is None else set(ranks)
    found = sorted(BoxFolder(run_dir, proc or Procfs()).by_rank().items())
    return [target_of_box(box) for rank, box in found if wanted is None or rank in wanted]


def target_of_box(box: Box) -> Target:
    """The process behind a box."""
    folder, command = box.path.parent, box.identity.get("command")
    return Target(
        rank=box.rank,
        pid=box.pid,
        label=f"rank{box.rank}",
        box=box,
        fr_socket=Path(str(box.identity.get("fr_socket") or folder / f"{box.pid}.fr.sock")),
        stacks_file=Path(str(box.identity.get("stacks_file") or folder / f"{box.pid}.stacks")),
        command=" ".join(map(str, command)) if isinstance(command, list) else str(command or ""),
    )


def targets_outside(ranks: Sequence[OutsideRank]) -> list[Target]:
    """Processes of a job that was started without diagd."""
    return _apart(
        Target(
            rank=rank.rank,
            pid=rank.pid,
            label=f"pid{rank.pid}" if rank.rank is None else f"rank{rank.rank}",
            fr_socket=rank.worker_server,
            command=rank.command,
        )
        for rank in ranks
    )


def targets_of_pids(pids: Sequence[int], watched: Iterable[Target] = (), proc: Procfs | None = None) -> list[Target]:
    """These processes: as their boxes name them where they are among the `watched`, else as they look from outside."""
    known = {target.pid: target for target in watched}
    others = targets_outside(described([pid for pid in pids if pid not in known], proc))
    seen = {target.pid: target for target in others}
    return _apart(known.get(pid) or seen[pid] for pid in dict.fromkeys(pids))


def _apart(targets: Iterable[Target]) -> list[Target]:
    """Each with a label of its own: two jobs have ranks of the same number."""
    found = list(targets)
    labels = [target.label for target in found]
    return [t if labels.count(t.label) == 1 else replace(t, label=f"{t.label}-pid{t.pid}") for t in found]


def collect_dump(
    targets: Sequence[Target], folder: Path, progress: Callable[[str], None] = lambda text: None, *,
    proc: Procfs | None = None, limit_s: float = LIMIT_S, patience: float = PATIENCE, native: bool = True,
) -> DumpSummary:  # fmt: skip
    """Dump all targets at once into `folder`; what a rank cannot give in time is named in the summary.

    Args:
        limit_s: What it may take.
        patience: Times as long where the machine is so busy that Python's stacks come slowly.

    Raises:
        OSError: The folder cannot be written.
    """
    began = time.monotonic()
    (folder / "flight_recorder").mkdir(parents=True, exist_ok=True)
    ranks = [
        (
            Context(target, proc or Procfs(), folder, began + patience * limit_s),
            RankDump(target.rank, target.pid, target.label),
        )
        for target in targets
    ]
    _write(ranks, PARTS, _WORKERS, progress)
    for context, _ in ranks:
        context.deadline_s = began + limit_s
    if native:
        _write(_oddest_first(ranks), (NATIVE,), os.cpu_count() or 1, lambda text: progress(f"native stacks of {text}"))
    for context, dump in ranks:
        context.closed = True
        for name, _ in (*PARTS, NATIVE) if native else PARTS:
            if name not in (*dump.parts, *dump.missing, *dump.absent):
                longest_s = limit_s if name == NATIVE[0] else patience * limit_s
                dump.missing[name] = f"{NO_TIME}: after {longest_s:g} s a dump is closed"
    return _summarised(folder, ranks, time.monotonic() - began)


Ranks = Sequence[tuple[Context, RankDump]]


def _write(ranks: Ranks, parts: Sequence[Part], workers: int, progress: Callable[[str], None]) -> None:
    """Write these parts of all ranks, several at a time, until the deadline."""
    pool = ThreadPoolExecutor(workers, "diagd-dump")
    jobs = {pool.submit(_write_rank, context, dump, parts): dump for context, dump in ranks}
    waiting, count = set(jobs), 0
    while waiting and time.monotonic() < ranks[0][0].deadline_s:
        done, waiting = wait(waiting, ranks[0][0].left_s, FIRST_COMPLETED)
        for job in done:
            job.result()
            count += 1
            progress(f"{jobs[job].label} ({count} of {len(jobs)})")
    pool.shutdown(wait=False, cancel_futures=True)


def _write_rank(context: Context, dump: RankDump, parts: Sequence[Part]) -> None:
    context.folder.mkdir(exist_ok=True)
    stat = stat_of(context)
    dump.state = stat.state if stat else ""
    for name, write in parts:
        if time.monotonic() >= context.deadline_s:
            return
        try:
            write(context)
            dump.parts.append(name)
        except NothingToWrite:
            dump.absent.append(name)
        except (NotThere, NoRecorder, NoStack) as exc:
            dump.missing[name] = str(exc)
        except (OSError, ValueError, KeyError, TypeError) as exc:  # of one part: the others are still worth having
            dump.missing[name] = f"{type(exc).__name__}: {exc}"


def _oddest_first(ranks: Ranks) -> Ranks:
    """One rank of each group of equal stacks, the smallest first, then the rest: time may not do for all."""
    numbers = {id(context): place for place, (context, _) in enumerate(ranks)}
    groups = grouping.group_stacks({numbers[id(c)]: c.stacks[0] for c, _ in ranks if c.stacks})
    groups.sort(key=lambda group: len(group.members))
    order = [group.members[0] for group in groups] + [place for group in groups for place in group.members[1:]]
    return [ranks[place] for place in (*order, *(n for n in range(len(ranks)) if n not in order))]


def _summarised(folder: Path, ranks: Ranks, took_s: float) -> DumpSummary:
    by_place: dict[int, Stack] = {}
    dumps = [dump for _, dump in ranks]
    for number, (context, dump) in enumerate(ranks):
        if context.stacks:
            by_place[number] = context.stacks[0]
            main = context.stacks[0].main
            dump.place = grouping.place(main.frames if main else ())
    groups = [
        f"{_named([dumps[number] for number in group.members])}: {grouping.place(group.frames)}"
        for group in grouping.group_stacks(by_place)
    ]
    summary = DumpSummary(folder, tuple(dumps), "; ".join(groups), took_s)
    (folder / "summary.txt").write_text(summary.text, encoding="utf-8")
    plain = {"took_s": took_s, "groups": summary.groups, "complete": summary.complete}
    data = json.dumps({**plain, "ranks": [asdict(dump) for dump in dumps]}, indent=1)
    (folder / "summary.json").write_text(data + "\n", encoding="utf-8")
    with contextlib.suppress(OSError):
        (folder / "flight_recorder").rmdir()  # only if it is empty
    return summary


def _named(dumps: Sequence[RankDump]) -> str:
    """Ranks by their numbers, all else by its pid."""
    ranks = [dump.rank for dump in dumps if dump.rank is not None]
    others = [f"pid {dump.pid}" for dump in dumps if dump.rank is None]
    return ", ".join([*([rank_ranges(ranks, named=True)] if ranks else []), *others])
