"""Read a dump folder of diagd's own: the flight recorder's entries, and what box, stacks and process add to them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from diagd.daemon.analyze import stacktext
from diagd.daemon.analyze.dumpfile import RankDump, parse
from diagd.daemon.analyze.plain import NotADump, load
from diagd.daemon.state.model import Ending, Group, Operation, Stack

SUMMARY = "summary.json"
JOB = "job.json"
ENDED = "the process has ended"  # as a dump says it
_RANK_FOLDER = re.compile(r"^rank(\d+)(-pid\d+)?$")


@dataclass(slots=True)
class RankFolder:
    """What the folder holds of one rank beside the flight recorder's entries."""

    rank: int
    box: dict[str, Any] = field(default_factory=dict)
    process: dict[str, Any] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()
    groups: tuple[Group, ...] = ()
    endings: tuple[Ending, ...] = ()
    stacks: tuple[Stack, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)  # part -> why the dump has none
    facts: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether the process was gone when it was to be dumped."""
        return self.missing.get("process") == ENDED

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the rank said of itself."""
        said = self.box.get("identity")
        return said if isinstance(said, dict) else {}

    @property
    def ending(self) -> Ending | None:
        """How the user's code ended: an exception says more than the exit or shutdown that follows it."""
        found = [one for one in self.endings if one.what != "thread"]
        return next((e for e in found if e.what == "exception"), next(iter(found), None))

    @property
    def thread_ended(self) -> Ending | None:
        """A thread of it that ended in an exception."""
        return next((one for one in self.endings if one.what == "thread"), None)

    def number(self, name: str) -> int:
        """A number of the box's; -1 where it has none."""
        said = self.box.get("numbers")
        value = said.get(name) if isinstance(said, dict) else None
        return value if isinstance(value, int) else -1


def is_folder(path: Path) -> bool:
    """Whether it is a dump folder."""
    return (path / SUMMARY).is_file() and any(_RANK_FOLDER.match(one.name) for one in path.iterdir() if one.is_dir())


def newest_below(path: Path) -> Path | None:
    """The newest dump folder of a report's; None where there is none."""
    below = path / "dumps"
    found = [one for one in below.iterdir() if one.is_dir() and is_folder(one)] if below.is_dir() else []
    return max(found, key=lambda one: (one / SUMMARY).stat().st_mtime, default=None)


def places(path: Path) -> str:
    """Where the ranks were, in a line, as the folder's summary has it."""
    said = _json(path / SUMMARY, {})
    groups = said.get("groups") if isinstance(said, dict) else None
    return str(groups or f"see {path}/summary.txt")


def patience_s(path: Path) -> float | None:
    """With how long a wait the job's user was patient, where the job's watch took the dump; None not known."""
    said = _json(path / JOB, {})
    value = said.get("hang_after_s") if isinstance(said, dict) else None
    return float(value) if isinstance(value, int | float) and value > 0 else None


def read(path: Path) -> tuple[dict[int, RankDump], dict[int, RankFolder], dict[str, str]]:
    """The ranks' flight recorders, what else is there of each, and what could not be read (file -> why).

    Raises:
        NotADump: It holds nothing of any rank.
    """
    problems: dict[str, str] = {}
    missing = _missing(path, problems)
    places = sorted((int(found[1]), one) for one in path.iterdir() if (found := _RANK_FOLDER.match(one.name)))
    extras = {rank: _rank_folder(rank, one, missing.get(rank, {}), problems) for rank, one in places}
    if not extras:
        raise NotADump("is a dump folder without any rank")
    taken_s = _taken_s(path, extras)
    for extra in extras.values():
        extra.stacks = tuple(replace(stack, taken_s=taken_s) for stack in extra.stacks)
    dumps = {}
    for rank, extra in extras.items():
        dump = _recorder(path / f"fr_trace_{rank}.json", rank, extra, taken_s, problems)
        if dump is not None:
            dumps[rank] = dump
    return dumps, extras, problems


def _missing(path: Path, problems: dict[str, str]) -> dict[int, dict[str, str]]:
    said = _json(path / SUMMARY, problems)
    ranks = said.get("ranks") if isinstance(said, dict) else None
    return {one["rank"]: one.get("missing") or {} for one in ranks or () if isinstance(one, dict) and "rank" in one}


def _taken_s(path: Path, extras: Mapping[int, RankFolder]) -> float:
    """When the dump was made: a rank's heartbeat tells better than a file's time, which copying changes."""
    beats = [float(extra.box.get("heartbeat_s") or 0.0) for extra in extras.values()]
    return max(beats) or (path / SUMMARY).stat().st_mtime


def _rank_folder(rank: int, path: Path, missing: dict[str, str], problems: dict[str, str]) -> RankFolder:
    box, process = _json(path / "box.json", problems), _json(path / "process.json", problems)
    found = RankFolder(rank, missing=missing)
    found.box = box if isinstance(box, dict) else {}
    found.process = process if isinstance(process, dict) else {}
    found.operations = _converted(path / "collectives.json", tuple[Operation, ...], problems)
    try:
        found.groups = msgspec.convert(found.box.get("groups") or (), tuple[Group, ...])
        found.facts = msgspec.convert(found.box.get("facts") or {}, dict[str, tuple[int, str]])
        found.endings = msgspec.convert(found.box.get("endings") or (), tuple[Ending, ...])
    except msgspec.ValidationError as exc:
        problems[str(path / "box.json")] = f"is not what diagd writes: {exc}"
    stacks = path / "stacks.txt"
    if stacks.is_file():
        found.stacks = stacktext.parse(stacks.read_text(encoding="utf-8", errors="replace"), 0.0)
    return found


def _json(path: Path, problems: dict[str, str]) -> object:
    """The file's value; None where there is no such file, or where it cannot be read."""
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as exc:
        problems[str(path)] = f"cannot be read: {exc}"
        return None


def _converted(path: Path, form: Any, problems: dict[str, str]) -> Any:
    try:
        return msgspec.convert(_json(path, problems) or (), form)
    except msgspec.ValidationError as exc:
        problems[str(path)] = f"is not what diagd writes: {exc}"
        return ()


def _recorder(
    path: Path, rank: int, extra: RankFolder, taken_s: float, problems: dict[str, str]
) -> RankDump | None:  # fmt: skip
    """The rank's flight recorder; where that did not answer, the groups that its box names."""
    found: object = {"entries": []}
    if path.is_file():
        try:
            found = load(path.read_bytes())
        except (NotADump, OSError) as exc:
            problems[str(path)] = str(exc)
    elif not extra.box:
        return None
    members = {group.name: {"desc": group.description, "ranks": str(list(group.ranks))} for group in extra.groups}
    if isinstance(found, dict) and members:
        found = {**found, "pg_config": members}
    try:
        return parse(found, rank, path, taken_s)
    except NotADump as exc:
        problems[str(path)] = str(exc)
        return None
