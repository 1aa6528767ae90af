"""Replicas whose samplers shuffle with other seeds, or for other epochs: their parts then overlap, and miss samples.

A DistributedSampler takes each world-size-th place of one permutation, which each rank draws by itself: the parts fit
together only where all draw the same one.
"""

from collections.abc import Iterator
from typing import NamedTuple

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.replicas import replicas_of
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.job import JobState

SHOWN = 4


class Shuffle(NamedTuple):
    """What one rank's sampler was made with, as the probe tells it."""

    rank: int
    replicas: int
    samples: int
    seed: int
    epoch: int


def other_orders(scene: Scene) -> Iterator[Finding]:
    """One finding for each set of replicas whose samplers do not draw the same permutation."""
    for replicas in replicas_of(scene.state):
        told = _told(scene.state, replicas.ranks)
        if told is None:
            continue
        step, shuffles = told
        for what in ("seed", "epoch"):
            values = {rank: int(getattr(one, what)) for rank, one in shuffles.items()}
            if len(set(values.values())) > 1:
                yield _finding(what, values, step)
                break


def _told(state: JobState, ranks: tuple[int, ...]) -> tuple[int, dict[int, Shuffle]] | None:
    """The step at which all have begun a pass, and their samplers; None where these are no parts of one whole."""
    facts = {rank: fact for rank in ranks if (fact := state.signals.fact(rank, "data/shuffle")) is not None}
    shuffles = {rank: one for rank, (_, text) in facts.items() if (one := _read(text)) is not None}
    steps = {step for step, _ in facts.values()}
    whole = {(one.replicas, one.samples) for one in shuffles.values()}
    if len(shuffles) < len(ranks) or len(steps) != 1 or len(whole) != 1:
        return None
    parts = {one.rank for one in shuffles.values()}
    apart = len(parts) == len(ranks) and next(iter(whole))[0] == len(ranks)
    return (steps.pop(), shuffles) if apart else None


def _read(text: str) -> Shuffle | None:
    try:
        return Shuffle(*map(int, text.split()))
    except (ValueError, TypeError):
        return None


def _finding(what: str, values: dict[int, int], step: int) -> Finding:
    alike: dict[int, list[int]] = {}
    for rank, value in values.items():
        alike.setdefault(value, []).append(rank)
    odd, tie = minority(sorted(alike.values(), key=lambda ranks: (-len(ranks), ranks)))
    said = ", ".join(f"{value} on {words.ranks_text(ranks)}" for value, ranks in list(alike.items())[:SHOWN])
    how = f"with other {what}s each" if tie else f"with another {what} than the others'"
    text = (
        f"the samplers of {words.ranks_text(odd)} shuffle {how} ({said}): each rank takes its part of another order, so"
        " that some samples come on several ranks in a pass and others on none"
    )
    why = {
        "seed": "the samplers were made with a seed of each rank's own: a clock, a hash, the rank itself",
        "epoch": "set_epoch was called on some ranks, or with numbers that differ",
    }[what]
    cause = Cause(f"shuffle_{what}", why, 0.9, Basis.OBSERVATION,
                  (Evidence(f"DistributedSampler {what}: {said}", "probe", odd[0], step),))  # fmt: skip
    return Finding(
        "divergence.data", Severity.WARNING, odd, words.shortened(text + "."), (cause,),
        names=("sampler", what, "batch"), step=step, sure=True, goes_on=True, key=f"shuffle:{what}",
    )  # fmt: skip
