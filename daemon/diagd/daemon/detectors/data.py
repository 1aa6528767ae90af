"""Ranks, or the workers of one, that see the same samples or the same random numbers where they should not."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.host_seeds import same_host_numbers
from diagd.daemon.detectors.overlap import overlapping
from diagd.daemon.detectors.replicas import (
    Replicas,
    SideBySide,
    alike,
    equal,
    has_groups_within,
    members,
    replicas_of,
    side_by_side,
    streak,
)
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.seeds import same_numbers, same_numbers_of_some
from diagd.daemon.state.job import JobState

SEEN = 6  # steps in a row at which inputs must be equal: a small dataset can repeat by chance, not so often
DISTINCT = 0.6  # of those, so many different ones: a constant input says nothing of the samples
TURNS = 4  # of a loader's workers
TURNS_ALIKE = 0.9


def same_data(scene: Scene) -> Iterator[Finding]:
    """One finding for each set of replicas that train on the same input; else one for equal random numbers."""
    for replicas in replicas_of(scene.state):
        found = _same_batch(scene.state, replicas)
        numbers = same_numbers(scene.state, replicas) or same_numbers_of_some(scene.state, replicas)
        drawn = (numbers, *same_host_numbers(scene.state, replicas))
        if found is None and not any(drawn):
            yield from _same_batch_of_some(scene.state, replicas)
        if found is None:
            found = overlapping(scene.state, replicas)
        known = [one for one in ((found,) if found is not None else drawn) if one is not None]
        if known:
            yield min(known, key=lambda one: one.severity.order)


def same_workers(scene: Scene) -> Iterator[Finding]:
    """Ranks whose loader gets the same batches from each of its workers."""
    state = scene.state
    found = [rank for rank in state.signals.ranks("data/worker_repeats") if _repeats(state, rank)]
    if not found:
        return
    ranks = tuple(found)
    turns = _last(state, ranks[0], "data/worker_groups")
    alike = _last(state, ranks[0], "data/worker_repeats")
    text = (
        f"all workers of the DataLoader of {words.ranks_text(ranks)} give the same batches: in {alike} of {turns} turns"
    )
    cause = Cause(
        "worker", "each worker goes through the whole dataset, and does not take its part of it", 0.9,
        Basis.OBSERVATION, (Evidence(f"fingerprints of the batches: equal in {alike} of {turns} turns of the workers,"
                                     " and other ones in each turn", "probe", ranks[0]),),
    )  # fmt: skip
    yield Finding(
        "divergence.data", Severity.WARNING, ranks, words.shortened(f"{text}, so each sample is trained on repeatedly"),
        (cause,), names=("worker", "batch"), step=_first_step(state, ranks[0], "data/worker_repeats"), sure=True,
        goes_on=True, key="worker",
    )  # fmt: skip


def same_order(scene: Scene) -> Iterator[Finding]:
    """Samplers that shuffle and are never told of a new epoch."""
    state = scene.state
    facts = {rank: fact for rank in state.ranks() if (fact := state.signals.fact(rank, "data/same_order")) is not None}
    if not facts:
        return
    ranks = tuple(sorted(facts))
    step, said = facts[ranks[0]]
    cause = Cause(
        "order", "the sampler's order depends on its seed and epoch alone, and set_epoch is not called", 0.95,
        Basis.OBSERVATION, (Evidence(said, "probe", ranks[0], step),),
    )  # fmt: skip
    text = f"the shuffling sampler of {words.ranks_text(ranks)} gives the same order in every epoch ({said})"
    yield Finding(
        "divergence.data", Severity.INFO, ranks, words.shortened(text), (cause,), names=("sampler", "set_epoch"),
        step=step, sure=True, goes_on=True, key="order",
    )  # fmt: skip


def _same_batch(state: JobState, replicas: Replicas) -> Finding | None:
    ranks = replicas.ranks
    loaded = alike(state, ranks, "data/loaded", SEEN)
    has_input = bool(state.signals.ranks("data/input"))
    seen = alike(state, ranks, "data/input", SEEN) if has_input else loaded
    times = _times_alike(seen)
    if seen is None or not times:
        return None
    losses = _losses(state, ranks, seen.steps[-times:])
    sure = replicas.wrapper != "" and has_input
    # What differs may be added behind this input by design: random actions, noise, targets.
    behind = losses is False and has_input and not (sure and _times_alike(loaded))
    if (behind and _has_loader(state, ranks)) or not (losses or sure or behind):
        return None
    proved = losses is True and replicas.wrapper != "" and not has_groups_within(state, ranks)
    # Never critical: the job is no worse than on one rank, and made-up data is often the same on all by intent.
    # One sample split over ranks (sequence, tensor) looks the same.
    severity = Severity.INFO if behind or has_groups_within(state, ranks) else Severity.WARNING
    since = int(seen.steps[-times])
    return Finding(
        "divergence.data", severity, ranks, words.shortened(_batch_text(state, ranks, since, behind=behind)),
        (_batch_cause(state, replicas, times, since, losses, proved),),
        names=("batch", "sampler") if loaded is not None else ("batch",), step=since, sure=True, goes_on=True,
        key=f"batch:{ranks[0]}",
    )  # fmt: skip


def _same_batch_of_some(state: JobState, replicas: Replicas) -> Iterator[Finding]:
    """The same among some of the replicas: proved by losses or loaders, and where nothing says they share a sample."""
    name = "data/input" if state.signals.ranks("data/input") else "data/loaded"
    seen = side_by_side(state, replicas.ranks, name) if len(replicas.ranks) > 2 and replicas.wrapper else None
    if seen is None or len(seen.steps) < SEEN:
        return
    newest: dict[bytes, list[int]] = {}
    for rank, values in zip(replicas.ranks, seen.values, strict=True):
        newest.setdefault(values[-SEEN:].tobytes(), []).append(rank)
    for ranks in newest.values():
        mine = set(ranks)
        groups = [set(group.ranks) for rank in ranks for group in state.detail(rank).groups]
        groups = [group for group in groups if group not in _own_groups(state, ranks)]
        if not 1 < len(ranks) < len(replicas.ranks) or any(1 < len(mine & group) == len(group) for group in groups):
            continue
        found = _same_batch(state, replicas._replace(ranks=tuple(ranks)))
        # Without noise in the model the losses are the same; else what the loaders gave says it.
        loaded = alike(state, tuple(ranks), "data/loaded", SEEN)
        if found is not None and (_losses(state, tuple(ranks), seen.steps[-SEEN:]) or _times_alike(loaded)):
            yield found


def _own_groups(state: JobState, ranks: list[int]) -> list[set[int]]:
    """Groups in which the wrapper averages, over replicas and shards: they have no sample in common."""
    facts = [fact[1] for rank in ranks if (fact := state.signals.fact(rank, "data/replica_groups")) is not None]
    return [set(members(text)) for fact in facts for text in fact.split()]


def _has_loader(state: JobState, ranks: tuple[int, ...]) -> bool:
    """Whether batches come from a loader, which then are not the same on all."""
    return any(state.signals.series(rank, "data/loaded") is not None for rank in ranks)


def _times_alike(seen: SideBySide | None) -> int:
    """At how many of the newest steps the ranks had the same input, a changing one; 0 for too few."""
    if seen is None:
        return 0
    times = streak(equal(seen))
    distinct = len(np.unique(seen.values[0, len(seen.steps) - times :]))
    return times if times >= SEEN and distinct >= DISTINCT * min(times, 2 * SEEN) else 0


def _losses(state: JobState, ranks: tuple[int, ...], steps: np.ndarray) -> bool | None:
    """Whether the losses were equal, bit for bit, at these steps; None where that is not known."""
    seen = side_by_side(state, ranks, "loss")
    if seen is None:
        return None
    same = equal(seen)[np.isin(seen.steps, steps)]
    return bool(same.all()) if len(same) >= SEEN else None


def _batch_text(state: JobState, ranks: tuple[int, ...], since: int, *, behind: bool) -> str:
    sampler = state.signals.fact(ranks[0], "data/sampler")
    if behind:
        return (
            f"{words.ranks_text(ranks)} give their models the same input at every step since step {since}; their"
            " losses differ by what comes in behind it, as targets, noise or actions"
        )
    text = f"{words.ranks_text(ranks)} train on the same batch at every step since step {since}"
    if sampler is not None:
        text += f" (their DataLoader's sampler is a {sampler[1]})"
    return f"{text}: {len(ranks)} ranks do the work of one"


def _batch_cause(
    state: JobState, replicas: Replicas, times: int, since: int, losses: bool | None, proved: bool
) -> Cause:
    newest = f"at the newest {times} steps that were compared"
    shown = [Evidence(f"fingerprints of the model's input are equal on all of them {newest}", "probe", step=since)]
    if losses is True:
        shown.append(Evidence("their losses are equal too, bit for bit", "signals", step=since))
    elif losses is False:
        shown.append(Evidence("their losses differ: random numbers or targets do", "signals", step=since))
    sampler = state.signals.fact(replicas.ranks[0], "data/sampler")
    if sampler is not None:
        shown.append(Evidence(f"the batches are chosen by a {sampler[1]}", "probe", replicas.ranks[0]))
    text = "no sampler gives each rank its own part of the data, or the ranks draw their data with the same seed"
    if sampler is not None and (given := _given_to_all(state, replicas.ranks)):
        text = f"their samplers were all made as {given}: for the rank within the node, say, in place of the global one"
    basis = Basis.OBSERVATION if proved else Basis.INFERENCE
    return Cause("sampler", text, 0.95 if proved else 0.7, basis, tuple(shown))


def _given_to_all(state: JobState, ranks: tuple[int, ...]) -> str:
    """What the samplers of all these ranks were made as, where that is one rank of several: "rank 0 of 4"."""
    facts = [state.signals.fact(rank, "data/sampler") for rank in ranks]
    told = {fact[1].partition(" rank ")[2] if fact is not None else "" for fact in facts}
    return f"rank {given}" if len(told) == 1 and (given := told.pop()) else ""


def _repeats(state: JobState, rank: int) -> bool:
    turns, alike = _last(state, rank, "data/worker_groups"), _last(state, rank, "data/worker_repeats")
    return alike >= TURNS and alike >= TURNS_ALIKE * turns


def _last(state: JobState, rank: int, name: str) -> int:
    series = state.signals.series(rank, name)
    return int(series.values[-1]) if series is not None and len(series) else 0


def _first_step(state: JobState, rank: int, name: str) -> int | None:
    series = state.signals.series(rank, name)
    return series.first_step if series is not None else None
