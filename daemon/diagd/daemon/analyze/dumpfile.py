"""One flight-recorder file: what it says of its rank, from torch 2.6 on, whatever it leaves out."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from diagd.daemon.agent.entries import first, operation_name, operations, shapes, whole
from diagd.daemon.analyze.plain import NotADump, load
from diagd.daemon.analyze.table import Table, table_of
from diagd.daemon.state.model import Operation

MAX_BYTES = 1 << 30  # of one rank: 2,000 entries with stacks take about 1 MB
MAX_RANKS = 1 << 17
DEFAULT = ("default_pg", "default")  # how torch describes the group that init_process_group makes
_SAMPLE = 100  # entries
_TOO_DEEP = "is nested too deeply for a dump"
_RANK = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_ENDINGS = frozenset({".json", ".pickle", ".pkl", ".bin", ".dump", ".trace", ".txt"})
_PARTS = frozenset({"entries", "pg_status", "pg_config"})  # one of them is in every dump


@dataclass(slots=True)
class RankDump:
    """What one rank left."""

    rank: int
    path: Path
    taken_s: float  # when the file was written, as its folder says
    table: Table
    version: str = ""  # of the dump's form, such as "2.10"
    backend: str = ""
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)  # members by name, where the dump names them
    descriptions: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # of groups whose members it does not name, where they show
    enqueued: int = -1  # collectives of the default group by the rank's own counter; -1 not known
    first_record: int = 0  # above 0: the ring has lost older entries

    @property
    def operations_in(self) -> int:
        """How many operations it holds."""
        return len(self.table)


def rank_in(name: str) -> int:
    """The rank that a file's name speaks of.

    Raises:
        NotADump: It speaks of none.
    """
    stem = name
    while (suffix := Path(stem).suffix.lower()) in _ENDINGS and suffix:
        stem = stem[: -len(suffix)]
    named = _RANK.findall(stem) or _NUMBER.findall(stem)
    if not named:
        raise NotADump(
            "has no rank in its name, such as trace_3 or rank_3.json, and a dump does not say its rank itself"
        )
    rank = int(named[-1])
    if rank >= MAX_RANKS:
        raise NotADump(f"has {rank} in its name, which is no rank")
    return rank


def read(path: Path) -> RankDump:
    """Read one rank's file.

    Raises:
        NotADump: It is none, or cannot be read; the message says why.
    """
    try:
        rank = rank_in(path.name)
    except NotADump:
        _content(path)  # of a file that is none at all, what it is says more than how it is called
        raise
    found, written_s = _content(path)
    try:
        return parse(found, rank, path, written_s)
    except RecursionError as exc:
        raise NotADump(_TOO_DEEP) from exc


def _content(path: Path) -> tuple[object, float]:
    """The file's value, and when it was written."""
    try:
        stat = path.stat()
        if stat.st_size > MAX_BYTES:
            raise NotADump(f"has {stat.st_size >> 20} MiB, too much for one rank's dump")
        return load(path.read_bytes()), stat.st_mtime
    except OSError as exc:
        raise NotADump(f"cannot be read: {exc.strerror or exc}") from exc
    except RecursionError as exc:
        raise NotADump(_TOO_DEEP) from exc


def parse(found: object, rank: int, path: Path, taken_s: float) -> RankDump:
    """What a dump's value says.

    Raises:
        NotADump: It is the value of something else.
    """
    if not isinstance(found, dict) or not _PARTS & found.keys():
        raise NotADump(f"holds {_described(found)}, and no flight recorder's dump")
    listed = found.get("entries", ())
    if not isinstance(listed, list | tuple):
        raise NotADump(f"has {_described(listed)} for its entries, and no list")
    entries = [e for e in listed if isinstance(e, dict) and e.get("profiling_name") and _is_sound(e)]
    if listed and not entries:
        raise NotADump(f"has {len(listed)} entries, and none is one of the flight recorder's")
    groups, descriptions = _groups(found.get("pg_config"))
    for pair in {tuple(map(str, pair)) for e in entries if isinstance(pair := e.get("process_group"), list | tuple)}:
        if len(pair) > 1:
            descriptions.setdefault(pair[0], pair[1])
    # A collective without its place meets nothing, nor does a send whose partner is in a group of unknown ranks.
    named = {*groups, *(name for name, description in descriptions.items() if description in DEFAULT)}
    done = [op for op in operations(entries, groups) if (op.group in named if op.p2p else op.seq > 0)]
    if entries and not done and not any(op.p2p for op in operations(entries, groups)):
        raise NotADump(f"has {len(entries)} entries, and none says its place in its group's order")
    return RankDump(
        rank=rank, path=path, taken_s=taken_s, table=table_of(done), version=str(found.get("version") or ""),
        backend=_backend(entries), groups=groups, descriptions=descriptions, sizes=_sizes(entries, groups),
        enqueued=_enqueued(found.get("pg_status"), done),
        first_record=min((whole(entry.get("record_id")) for entry in entries), default=0),
    )  # fmt: skip


def _is_sound(entry: dict[str, Any]) -> bool:
    """Whether its group and its sizes are of the forms that the recorder writes, or left out."""
    group, sizes = entry.get("process_group"), entry.get("input_sizes")
    return (group is None or isinstance(group, list | tuple)) and (sizes is None or isinstance(sizes, list | tuple))


def _described(found: object) -> str:
    if isinstance(found, dict):
        names = ", ".join(repr(str(key))[:40] for key in list(found)[:4])
        return f"other things ({names})" if names else "nothing"
    return f"a {type(found).__name__}"


def _groups(config: object) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Members and descriptions by name; gloo's dumps have one entry without a name, which says nothing."""
    members: dict[str, tuple[int, ...]] = {}
    descriptions: dict[str, str] = {}
    for name, said in config.items() if isinstance(config, dict) else ():
        if name and isinstance(said, Mapping):
            if ranks := ranks_of(str(said.get("ranks") or "")):
                members[str(name)] = ranks
            descriptions[str(name)] = str(said.get("desc") or "")
    return members, descriptions


@cache  # every rank's file repeats the same long lists
def ranks_of(text: str) -> tuple[int, ...]:
    """Global ranks from "[0, 1, 5]"."""
    return tuple(rank for number in _NUMBER.findall(text) if len(number) < 9 and (rank := int(number)) < MAX_RANKS)


def _sizes(entries: Sequence[Mapping[str, Any]], named: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """How many ranks a group has, from what an all-gather made of one rank's share."""
    found: dict[str, int] = {}
    for entry in entries:
        group = first(entry.get("process_group"))
        if group in named or group in found or operation_name(str(entry.get("profiling_name")))[0] != "ALLGATHER":
            continue
        share, whole_of = (sum(map(prod, shapes(entry.get(f"{side}_sizes")))) for side in ("input", "output"))
        if share > 0 and whole_of % share == 0:
            found[group] = whole_of // share
    return found


def _backend(entries: Sequence[Mapping[str, Any]]) -> str:
    """The one that most of the last entries are of: "nccl", "gloo", …"""
    heads = Counter(str(entry.get("profiling_name") or "").partition(":") for entry in entries[-_SAMPLE:])
    named = [head for (head, colon, _), _ in heads.most_common() if colon]
    return named[0] if named else ""


def _enqueued(status: object, done: Sequence[Operation]) -> int:
    """The default group's counter: it is the first that a rank makes, so 0 by the numbers that the status goes by.

    Sends and receives advance it too on some backends, so it is taken only where there are none.
    """
    said = status.get("0", status.get(0)) if isinstance(status, dict) else None
    if not isinstance(said, Mapping) or any(op.p2p for op in done):
        return -1
    number = whole(said.get("last_enqueued_collective", -1))
    return number if number > 0 else -1
