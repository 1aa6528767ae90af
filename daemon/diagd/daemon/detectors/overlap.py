"""Replicas whose batches are made of the same samples, shifted against each other: streams that begin some rows apart.

Method: six rows in a row, of which most differ, that two ranks see in the same order within a few steps. Samples that
ranks draw at random from a small dataset meet, too, but not in order.
"""

import re
from typing import NamedTuple

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.replicas import Replicas, has_groups_within
from diagd.daemon.state.job import JobState

RUN = 6  # rows in the same order
DISTINCT = 5  # of these
PART = 0.25  # of a rank's rows
DIGITS = 4  # of each row
_LOOK = re.compile(rf"(\d+)=((?:[0-9a-f]{{{DIGITS}}})+)")


class _Place(NamedTuple):
    step: int
    row: int


class _Shared(NamedTuple):
    rank: int
    other: int
    part: float
    mine: _Place
    theirs: _Place


def overlapping(state: JobState, replicas: Replicas) -> Finding | None:
    """One finding for all ranks that share samples with another one, at other places of their batches."""
    looks = {rank: _looks(state, rank) for rank in replicas.ranks}
    runs = {rank: _runs(mine) for rank, mine in looks.items()}
    first = replicas.ranks[0]
    found = [one for rank in replicas.ranks[1:] for other in (first, rank - 1) if other in looks and other != rank
             and (one := _shared(rank, other, looks[rank], runs[other])) is not None]  # fmt: skip
    if not found or has_groups_within(state, replicas.ranks):
        return None
    ranks = tuple(sorted({rank for one in found for rank in (one.rank, one.other)}))
    worst = max(found, key=lambda one: one.part)
    text = (
        f"{words.ranks_text(ranks)} train on the same samples, some rows apart: {worst.part:.0%} of those of rank"
        f" {worst.rank} are rank {worst.other}'s too"
    )
    seen = (
        f"row {worst.mine.row} of rank {worst.rank}'s batch at step {worst.mine.step} and the rows behind it are row"
        f" {worst.theirs.row} of rank {worst.other}'s at step {worst.theirs.step} and the rows behind that"
    )
    cause = Cause(
        "overlap", "each rank goes through the same stream, from another place of it on, where it should take its own"
        " part (each world-size-th sample)", 0.85, Basis.OBSERVATION,
        (Evidence(seen, "probe", worst.rank, worst.mine.step),),
    )  # fmt: skip
    return Finding(
        "divergence.data", Severity.WARNING, ranks, words.shortened(text), (cause,), names=("batch", "sampler"),
        step=worst.mine.step, sure=True, goes_on=True, key=f"overlap:{ranks[0]}",
    )  # fmt: skip


def _looks(state: JobState, rank: int) -> dict[int, list[str]]:
    """The rows' hashes by step."""
    fact = state.signals.fact(rank, "data/rows")
    found = (_LOOK.fullmatch(look) for look in fact[1].split(";")) if fact is not None else ()
    return {int(one[1]): re.findall(f".{{{DIGITS}}}", one[2]) for one in found if one is not None}


def _runs(looks: dict[int, list[str]]) -> dict[tuple[str, ...], _Place]:
    return {
        run: _Place(step, at)
        for step, rows in looks.items()
        for at in range(len(rows) - RUN + 1)
        if len(set(run := tuple(rows[at : at + RUN]))) >= DISTINCT
    }


def _shared(
    rank: int, other: int, looks: dict[int, list[str]], runs: dict[tuple[str, ...], _Place]
) -> _Shared | None:  # fmt: skip
    """How much of a rank's rows the other has at other places; at the same ones both may be given them by intent."""
    rows = sum(len(row) for row in looks.values())
    mine: set[_Place] = set()
    example: tuple[_Place, _Place] | None = None
    for run, place in _runs(looks).items():
        theirs = runs.get(run)
        if theirs is None:
            continue
        if theirs == place:
            return None
        example = example or (place, theirs)
        mine |= {_Place(place.step, place.row + after) for after in range(RUN)}
    if example is None or len(mine) < PART * rows:
        return None
    return _Shared(rank, other, len(mine) / rows, *example)
