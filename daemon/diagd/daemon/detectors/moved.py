"""On a tie: which rank's tensor has moved by more than its own steps can account for."""

import json
from dataclasses import replace
from typing import Any

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.differing import How, Parted
from diagd.daemon.state.job import JobState

SLACK = 2.0  # times what the largest step seen of that tensor makes of all steps in between


def told_apart(state: JobState, one: Parted) -> Parted:
    """The same with the odd ranks, where more than their number tells them on a tie.

    A norm changes by no more than its steps allow; and of replicas, that make the same steps, each tensor is written in
    place as often.
    """
    if not one.is_tie or one.how is not How.CHANGED:
        return one
    found = _by_norm(state, one) if one.entry.kind == "parameter" else one
    return _by_version(state, found) if found.is_tie else found


def written_alone(state: JobState, found: list[Parted]) -> list[Parted]:
    """Those that one rank has written once more than the others: what else of their model has parted follows from that.

    Where ranks compute the same (tensor parallel), a weight that differs on one makes all else differ within a step.
    """
    by_hand = [(one, _by_version(state, one)) for one in found if one.how is How.CHANGED]
    return [told for one, told in by_hand if told is not one]


def _by_version(state: JobState, one: Parted) -> Parted:
    """One write more, by torch: an averaged model that is swapped in and out again makes two."""
    ranks = sorted(rank for alike in one.classes for rank in alike)
    told = {rank: _versions(state, rank) for rank in ranks}
    if any(found is None for found in told.values()) or len({found[0] for found in told.values() if found}) != 1:
        return one
    counts = {rank: _count(one.entry.name, rank, {r: f[1] for r, f in told.items() if f is not None}) for rank in ranks}
    known = [count for count in counts.values() if count is not None]
    odd = tuple(rank for rank, count in counts.items() if known and count == max(known))
    if len(known) < len(ranks) or max(known) - min(known) != 1 or len(odd) != 1:
        return one
    step = next(found[0] for found in told.values() if found is not None)
    if loads := _loads_apart(state, one, ranks, step):
        return replace(one, said=loads)  # which side is right, the load does not say
    said = f"{words.ranks_text(odd)}: it was written in place {max(known)} times by step {step}, once more"
    return replace(one, said=f"{said} than on the others", odd=odd)


def _loads_apart(state: JobState, one: Parted, ranks: list[int], step: int) -> str:
    """In words, that some of them have loaded weights more often since they were equal; empty where not."""
    times = {}
    for rank in ranks:
        series = state.signals.series(rank, "checkpoint/loads")
        before = [0.0] if series is None else [0.0, *series.values[series.steps <= one.entry.agreement.last_equal]]
        until = [0.0] if series is None else [0.0, *series.values[series.steps <= step]]
        times[rank] = int(until[-1] - before[-1])
    if len(set(times.values())) < 2:
        return ""
    told = ", ".join(f"rank {rank} {count} times" for rank, count in times.items())
    return f"weights were loaded (load_state_dict) between step {one.entry.agreement.last_equal} and {step}: {told}"


def _versions(state: JobState, rank: int) -> tuple[int, dict[str, Any]] | None:
    """The step, and how often tensors were written by then."""
    fact = state.signals.fact(rank, "tensor/versions")
    try:
        told = json.loads(fact[1]) if fact is not None else None
    except ValueError:  # cut off
        return None
    return (fact[0], told) if fact is not None and isinstance(told, dict) else None


def _count(name: str, rank: int, told: dict[int, dict[str, Any]]) -> int | None:
    """How often this rank has written a tensor; of one that it does not name, as often as many, if that fits."""
    mine = told[rank].get(name)
    if isinstance(mine, int):
        return mine
    usual = told[rank].get("") or []
    others = [version for one in told.values() if isinstance(version := one.get(name), int)]
    return next((version for version in (max(others), max(others) - 1) if version in usual), None) if others else None


def _by_norm(state: JobState, one: Parted) -> Parted:
    ranks = sorted(rank for alike in one.classes for rank in alike)
    jumps = {rank: _jump(state, rank, one) for rank in ranks}
    odd = tuple(rank for rank, jump in jumps.items() if jump)
    if any(jump is None for jump in jumps.values()) or not odd or len(odd) == len(ranks):
        return one
    said = f"{words.ranks_text(odd)}: {jumps[odd[0]]}; the norm of the others has moved by less than their steps"
    return replace(one, said=said, odd=odd)


def _jump(state: JobState, rank: int, one: Parted) -> str | None:
    """In words, by how much the norm moved beyond its steps; empty where it did not, None where that is not known."""
    norms = state.signals.series(rank, f"param_norm/{one.entry.name}")
    updates = state.signals.series(rank, f"update_norm/{one.entry.name}")
    if norms is None or updates is None or not len(updates):
        return None
    # The norm before a step is the one after the step before.
    before = np.flatnonzero(norms.steps - 1 <= one.entry.agreement.last_equal)
    after = np.flatnonzero(norms.steps - 1 >= one.since)
    if not len(before) or not len(after):
        return None
    first, last = int(before[-1]), int(after[0])
    steps = int(norms.steps[last] - norms.steps[first])
    moved = abs(float(norms.values[last] - norms.values[first]))
    most = SLACK * steps * float(np.max(updates.values[: last + 1]))
    if not moved > most:
        return ""
    begin, end = int(norms.steps[first]), int(norms.steps[last])
    return f"its norm has moved by {moved:.3g} from step {begin} to {end}, its own steps account for {most:.3g} at most"
