"""An optimizer's state that came back on another rank than the one whose it was."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene

ENTRY = re.compile(r"(.+)=([0-9a-f]{8}):([0-9a-f]{8})")
MOST = 0.5  # of a rank's parameters
SHOWN = 4  # names
KEY = "whose"


class _Mark(NamedTuple):
    """Of one parameter: hashes of some values of it, and of what the optimizer keeps for it."""

    weight: str
    moment: str


_Marks = dict[str, _Mark]


def whose_moments(scene: Scene) -> Iterator[Finding]:
    """Ranks that go on with the state that another rank wrote, or that they hold for other parameters than it does.

    What has the same name and the same state on several ranks is a replica's. A rank that took another's weights, too,
    means to go on as that one.
    """
    given = {rank: marks for rank in scene.state.ranks() if (marks := _marks(scene, rank, "given"))}
    kept = {rank: marks for rank in given if (marks := _marks(scene, rank, "kept"))}
    taken = {rank: other for rank in given for other in kept if _took(given[rank], kept.get(rank), kept[other])}
    if taken:
        yield _swapped(scene, taken, given)
        return
    pairs = ((rank, other) for rank in given for other in given if other < rank)
    held = {rank: other for rank, other in pairs if _of_others(given[rank], given[other])}
    if held:
        yield _copied(scene, held, given)


def _marks(scene: Scene, rank: int, what: str) -> _Marks:
    fact = scene.state.signals.fact(rank, f"checkpoint/{what}")
    found = (ENTRY.fullmatch(entry) for entry in fact[1].split(",")) if fact is not None else ()
    return {one[1]: _Mark(one[2], one[3]) for one in found if one is not None}


def _took(given: _Marks, own: _Marks | None, other: _Marks) -> bool:
    """Whether it has its own weights, and for most of them not the state that it wrote, but what the other wrote."""
    if not own:
        return False
    same = [name for name, mark in given.items() if name in own and mark.weight == own[name].weight]
    moments = {mark.moment for mark in other.values()}
    strange = [n for n in same if given[n].moment != own[n].moment and given[n].moment in moments]
    strange = [n for n in strange if given[n].moment not in {mark.moment for mark in own.values()}]
    return bool(strange) and len(strange) >= MOST * len(given)


def _of_others(given: _Marks, other: _Marks) -> bool:
    """Whether most of its state is what the other holds, each piece for another parameter with other values."""
    holders = {mark.moment: name for name, mark in other.items()}
    once = [mark.moment for mark in (*given.values(), *other.values())]
    pairs = [(name, holders[mark.moment]) for name, mark in given.items() if once.count(mark.moment) == 2
             and mark.moment in holders]  # fmt: skip
    strange = [1 for name, held in pairs if name != held and given[name].weight != other[held].weight]
    return bool(strange) and len(strange) >= MOST * len(given)


def _swapped(scene: Scene, taken: dict[int, int], given: dict[int, _Marks]) -> Finding:
    ranks = tuple(sorted(taken))
    each = ", ".join(f"rank {rank} has what rank {taken[rank]} wrote" for rank in ranks[:SHOWN])
    text = f"{words.ranks_text(ranks)} resumed with the optimizer's state of another rank: {each}"
    seen = "by their values, before the first step: the weights are the rank's own, the moments another rank's"
    return _finding(scene, ranks, text, seen, given[ranks[0]], "files of ranks are matched to them in another order")


def _copied(scene: Scene, held: dict[int, int], given: dict[int, _Marks]) -> Finding:
    ranks = tuple(sorted(held))
    rank, other = ranks[0], held[ranks[0]]
    names, theirs = list(given[rank]), list(given[other])
    text = (
        f"{words.ranks_text(ranks)} resumed with the optimizer's state of rank {other}, which keeps it for other"
        f" parameters: {names[0]} has what {theirs[0]} has there"
    )
    seen = f"the moments of {len(names)} parameters are those of rank {other}, the weights are others"
    why = "one rank's part of a sharded optimizer was written, and is loaded on all of them"
    return _finding(scene, ranks, text, seen, given[rank], why)


def _finding(scene: Scene, ranks: tuple[int, ...], text: str, seen: str, marks: _Marks, why: str) -> Finding:
    fact = scene.state.signals.fact(ranks[0], "checkpoint/given")
    step = fact[0] if fact is not None else None
    cause = Cause(KEY, why, 0.9, Basis.OBSERVATION, (Evidence(seen, "probe", ranks[0], step),))
    names = (*list(marks)[:SHOWN], "optimizer state", "exp_avg", "load_state_dict")
    return Finding(
        "divergence.checkpoint", Severity.WARNING, ranks, words.shortened(text), (cause,), names=names, step=step,
        sure=True, goes_on=True, key=KEY,
    )  # fmt: skip
