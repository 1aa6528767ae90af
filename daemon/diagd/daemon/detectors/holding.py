"""What a rank has told of what holds its memory: the container that grows with it, and its data loader."""

import json
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Frame

HOLDER = "memory/holder"
LOADER = "memory/loader"
KEPT, EMPTIED, TAKEN, LIMITED, CACHE, UNKNOWN = "kept", "emptied", "taken", "limited", "cache", "unknown"


@dataclass(frozen=True, slots=True)
class Holder:
    """A container of the script's that has grown between two looks, see probes/suspicion.py."""

    path: str = ""
    kind: str = ""
    size: int = 0
    grew: int = 0
    steps: int = 0
    bytes: int = 0  # its new elements weigh, a step
    graph: bool = False
    bounded: bool = False
    most: int = 0  # elements, where it is bounded; 0 not known
    function: str = ""
    file: str = ""
    owner: str = ""
    verdict: str = UNKNOWN
    places: tuple[Frame, ...] = ()

    @property
    def only_grows(self) -> bool:
        """Whether nothing in the script's text ever takes anything out, nor looks anything up."""
        return self.verdict == KEPT and not self.bounded

    @property
    def ends(self) -> bool:
        """Whether it is emptied somewhere, bounded, or looked up as a cache is: what fills it may well be as meant."""
        return (self.verdict in (EMPTIED, TAKEN, LIMITED, CACHE) or self.bounded) and not self.graph

    @property
    def what(self) -> str:
        """ "list hist.losses of History"."""
        of = f" of {self.owner}" if self.owner else f" in {self.function}" if self.function else ""
        return f"the {'graph of' if self.kind == 'graph' else self.kind} {self.path}{of}"


@dataclass(frozen=True, slots=True)
class Loader:
    """The newest data loader."""

    dataset: str = ""
    file: str = ""
    length: int = -1  # batches of an epoch; -1 not known
    workers: int = 0
    grown: tuple[tuple[str, str, Frame], ...] = ()  # container, verdict, where it is filled: of its dataset's text


class Kept(NamedTuple):
    """What stayed of what was allocated at one place, between two looks."""

    bytes: int
    blocks: int
    place: Frame


@dataclass(frozen=True, slots=True)
class Allocated:
    """What Python allocated and kept over some steps, see probes/allocations.py; empty where it kept nothing."""

    step: int
    steps: int
    kept: tuple[Kept, ...] = ()

    @property
    def places(self) -> tuple[Frame, ...]:
        """The one that keeps most first."""
        return tuple(one.place for one in self.kept)


def allocated(state: JobState, rank: int) -> Allocated | None:
    """What the rank was seen to allocate, where a person has asked for that."""
    fact = state.signals.fact(rank, "memory/allocated")
    lines = [line.split("\t") for line in fact[1].split("\n")] if fact is not None else []
    rows = [row for row in lines if len(row) == 6]  # the last one may be cut off
    if fact is None or not rows:
        return None
    kept = [Kept(int(row[0]), int(row[1]), Frame(row[5], row[3], int(row[4]))) for row in rows if row[3]]
    return Allocated(fact[0], int(rows[0][2]), tuple(kept))


def holder(state: JobState, rank: int) -> Holder | None:
    """What the rank's memory grows in, as far as that was seen."""
    said = _read(state, rank, HOLDER)
    if not said.get("path"):
        return None
    known = {f.name: said[f.name] for f in fields(Holder) if f.name in said and f.name != "places"}
    return Holder(**known, places=tuple(_frame(place) for place in said.get("places", ())))


def loader(state: JobState, rank: int) -> Loader | None:
    """The rank's newest data loader."""
    said = _read(state, rank, LOADER)
    if not said.get("dataset"):
        return None
    grown = tuple((path, verdict, _frame(place)) for path, verdict, place in said.get("grown", ()))
    return Loader(said["dataset"], said.get("file", ""), said.get("length", -1), said.get("workers", 0), grown)


def _read(state: JobState, rank: int, name: str) -> dict[str, Any]:
    fact = state.signals.fact(rank, name)
    try:
        said = json.loads(fact[1]) if fact is not None and fact[1] else {}
    except ValueError:  # cut off
        return {}
    return said if isinstance(said, dict) else {}


def _frame(place: list[Any]) -> Frame:
    function, file, line = place
    return Frame(str(function), str(file), int(line))
