"""Ranks that train copies of one model, each meant to see samples of its own; and their scalars side by side."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import NONE

CLOCK = "step/collectives"  # that a rank has entered by the end of a step
RECENT = 128  # samples of a series that are compared: agents report at different moments
EARLY = 16  # of the first steps each is told
TOLD_BY = 16  # steps: what a rank exchanges
OFTEN = 0.5  # operations a step; ranks that communicate less train apart, and meet again now and then if at all


class Replicas(NamedTuple):
    """The ranks, and how that is known: a wrapper's name, or empty where only their equal weights say so."""

    ranks: tuple[int, ...]
    wrapper: str


class SideBySide(NamedTuple):
    """What the ranks told for the same steps: steps int64 [n] from 1, values float64 [ranks, n]."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


def replicas_of(state: JobState) -> list[Replicas]:
    """Each set of them, as far as all members agree on it.

    Ranks whose tensors are split (tensor or pipeline parallel), or that hold experts of their own, are none.
    """
    told: dict[str, list[int]] = {}
    for rank in state.ranks():
        fact = state.signals.fact(rank, "data/replicas")
        if fact is not None:
            told.setdefault(fact[1], []).append(rank)
    if not told:
        return _by_equal_weights(state)
    found = []
    for text, ranks in sorted(told.items()):
        wrapper, _, who = text.partition(" ")
        if len(ranks) > 1 and tuple(ranks) == members(who):
            found.append(Replicas(tuple(ranks), wrapper))
    return found


def only_averages(state: JobState, rank: int) -> bool:
    """Whether the rank is known to exchange nothing of what it computes: else ranks may share each sample."""
    fact = state.signals.fact(rank, "data/exchanges")
    return fact is not None and fact[1] == "none"


def passes_on(state: JobState, rank: int) -> bool:
    """Whether all that the rank exchanges of what it computes is sent to single ones, as by a stage.

    In its first steps, in which it is not told yet, it may be so.
    """
    fact = state.signals.fact(rank, "data/exchanges")
    if fact is None:
        return int(state.columns.step[rank]) < TOLD_BY
    return {"SEND", "RECV"} >= set(fact[1].split(","))


def share_a_dataset(state: JobState, ranks: tuple[int, ...]) -> bool:
    """Whether the samplers of these ranks give each a part of one dataset: they are meant to train one model.

    Such ranks may average their weights at the end of each pass. So one must be over, but under accelerate, which does
    not prepare data for that without a model.
    """
    facts = [fact for rank in ranks if (fact := state.signals.fact(rank, "data/part")) is not None]
    parts = sorted(text.removesuffix(" accelerate") for _, text in facts)
    by_accelerate = all(text.endswith(" accelerate") for _, text in facts)
    if parts != sorted(f"{part} of {len(ranks)}" for part in range(len(ranks))):
        return False
    return by_accelerate or min(step for step, _ in facts) > TOLD_BY


def averages_over(state: JobState, ranks: tuple[int, ...]) -> bool:
    """Whether these ranks are a group over which all of them are known to add up more than figures at their steps."""
    told = (state.signals.fact(rank, "data/averages") for rank in ranks)
    return all(fact is not None and ranks in map(members, fact[1].split()) for fact in told)


def members(text: str) -> tuple[int, ...]:
    """Ranks as the probe writes them: `first:last:step`, or one by one; none where that cannot be read."""
    try:
        if ":" in text:
            first, last, step = map(int, text.split(":"))
            return tuple(range(first, last + 1, step))
        return tuple(map(int, text.split(",")))
    except ValueError:
        return ()


def _by_equal_weights(state: JobState) -> list[Replicas]:
    """All ranks, where each holds all that is trained, always equal, and communicates at its steps."""
    ranks = tuple(range(state.world_size))
    if len(ranks) < 2 or not all(communicates(state, rank) and only_averages(state, rank) for rank in ranks):
        return []
    compared = 0
    for entry in state.tensors.entries:
        infos = entry.infos.values()
        if entry.kind != "parameter" or not any(info.owned for info in infos):
            continue
        if any(info.local for info in infos) or tuple(sorted(entry.infos)) != ranks:
            return []
        seen = entry.agreement
        if seen.first != NONE and (not seen.first_equal or seen.unequal):
            return []
        compared += seen.last_equal > 0
    return [Replicas(ranks, "")] if compared else []


def communicates(state: JobState, rank: int) -> bool:
    """Whether the rank communicates about as often as it steps; what it does until its first step is not counted."""
    columns = state.columns
    if rank >= len(columns.known) or not columns.known[rank]:
        return False
    groups = state.detail(rank).groups
    issued, steps = sum(max(group.enqueued, 0) for group in groups), max(int(columns.step[rank]), 1)
    clock = state.signals.series(rank, CLOCK)
    if clock is None or len(clock) < 2 or clock.steps[0] != 1:
        return max(int(columns.operations[rank]), issued) >= OFTEN * steps
    # What the numbers say may be newer than what the clock does, which tells of the groups of all ranks. An outer
    # optimizer that averages weights now and then counts as the steps from its first one on: each of them meets.
    met = min(_met(clock.steps, clock.values), _met(clock.steps[:EARLY], clock.values[:EARLY]))
    within = _within(state, rank)
    passed = max(int(columns.operations[rank]) - issued, 0)
    return met + (within + passed) / steps >= OFTEN


def is_clocked(state: JobState, rank: int) -> bool:
    """Whether the rank has told by now how often it meets the others at its steps, or never will."""
    clock = state.signals.series(rank, CLOCK)
    return (clock is not None and len(clock) > 1) or int(state.columns.step[rank]) >= TOLD_BY


def mixes(state: JobState, rank: int) -> bool:
    """Whether the rank exchanges what it holds with single other ones, as where neighbours average their weights.

    It reduces nothing over all ranks, or over a group of them, at most of its steps. In the first of them it is not yet
    told what else it exchanges.
    """
    fact, clock = state.signals.fact(rank, "data/exchanges"), state.signals.series(rank, CLOCK)
    if clock is None or len(clock) < 2 or (fact is not None and not {"SEND", "RECV"} & set(fact[1].split(","))):
        return False
    return _met(clock.steps, clock.values) + _within(state, rank) / max(int(state.columns.step[rank]), 1) < OFTEN


def _within(state: JobState, rank: int) -> int:
    """Collectives that the rank has issued on groups of some of the ranks."""
    return sum(max(g.enqueued, 0) for g in state.detail(rank).groups if 1 < len(g.ranks) < state.world_size)


def _met(steps: NDArray[np.int64], values: NDArray[np.float64]) -> float:
    """Collectives a step, by how many had been entered by the end of each."""
    return float(values[-1] - values[0]) / max(float(steps[-1] - steps[0]), 1.0)


def side_by_side(state: JobState, ranks: tuple[int, ...], name: str, recent: int | None = RECENT) -> SideBySide | None:
    """One scalar of all these ranks, at the recent steps (None: all) that each has told; None where one has not."""
    told: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
    for rank in ranks:
        series = state.signals.series(rank, name)
        if series is None:
            return None
        kept = slice(-recent if recent is not None else None, None)
        told.append((series.steps[kept], series.values[kept]))
    if not told:
        return None  # no ranks
    steps = np.unique(told[0][0])
    for theirs, _ in told[1:]:
        if not np.array_equal(steps, theirs):
            steps = np.intersect1d(steps, theirs)
    values = [found[np.searchsorted(theirs, steps, "right") - 1] for theirs, found in told]  # of a step the last
    return SideBySide(steps, np.array(values, np.float64).reshape(len(ranks), len(steps)))


def alike(state: JobState, ranks: tuple[int, ...], name: str, least: int) -> SideBySide | None:
    """The same, where the first two of the ranks agree at so many of the newest steps: in a healthy job, never."""
    pair = side_by_side(state, ranks[:2], name)
    return side_by_side(state, ranks, name) if pair is not None and streak(equal(pair)) >= least else None


def equal(seen: SideBySide) -> NDArray[np.bool_]:
    """At which of the steps all ranks told the same."""
    first = seen.values[:1]
    found: NDArray[np.bool_] = ((seen.values == first) | (np.isnan(seen.values) & np.isnan(first))).all(axis=0)
    return found


def streak(same: NDArray[np.bool_]) -> int:
    """How many of the newest steps are alike without a break."""
    broken = np.flatnonzero(~same)
    return len(same) - (int(broken[-1]) + 1 if len(broken) else 0)


def has_groups_within(state: JobState, ranks: tuple[int, ...]) -> bool:
    """Whether some of these ranks have a process group among themselves, as where they share one sample."""
    mine = set(ranks)
    return any(
        1 < len(group.ranks) < len(mine) and mine.issuperset(group.ranks) for group in state.detail(ranks[0]).groups
    )
