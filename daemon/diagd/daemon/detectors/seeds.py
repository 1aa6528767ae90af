"""Replicas whose random number generators stand alike while each step draws of them."""

from dataclasses import replace

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.replicas import Replicas, SideBySide, alike, equal, side_by_side, streak
from diagd.daemon.state.job import JobState

LOOKS = 4  # at the generators, in a row
NEWEST = 8  # looks that tell what the steps draw
NEARLY = 0.75  # of them
LARGE = 128  # numbers drawn in a step: fewer can be a decision that all ranks take alike, or how a batch is mixed
LARGE_OFFSET = 8  # of a device's generator: each kernel that draws adds 4 or more, a single one can be a decision too
_APART = "Where that is not meant, seed each rank apart (with accelerate: set_seed(seed, device_specific=True))"


def same_numbers(state: JobState, replicas: Replicas) -> Finding | None:
    """Generators that stand alike on all ranks, and of which each step draws."""
    for device in ("", "_cuda"):
        found = _drawn_alike(state, replicas.ranks, device)
        if found is not None:
            return found
    return None


def same_numbers_of_some(state: JobState, replicas: Replicas) -> Finding | None:
    """The same among a part of the replicas that see samples of their own: seeded by the index of their node, say."""
    seen = side_by_side(state, replicas.ranks, "data/rng") if len(replicas.ranks) > 2 else None
    if seen is None or len(seen.steps) < LOOKS:
        return None
    classes: dict[bytes, list[int]] = {}
    for rank, values in zip(replicas.ranks, seen.values, strict=True):
        classes.setdefault(values[-LOOKS:].tobytes(), []).append(rank)
    parts = [tuple(ranks) for ranks in classes.values() if 1 < len(ranks) < len(replicas.ranks)]
    found = [one for ranks in parts if _see_their_own(state, ranks) and (one := _drawn_alike(state, ranks, ""))]
    if len(found) < 2:
        return found[0] if found else None
    others = " and ".join(words.ranks_text(one.ranks) for one in found[1:])
    ranks = tuple(sorted(rank for one in found for rank in one.ranks))
    return replace(found[0], ranks=ranks, summary=words.shortened(f"{found[0].summary}; so do {others} among them"))


def _see_their_own(state: JobState, ranks: tuple[int, ...]) -> bool:
    """Whether no two of these ranks had the same batch: those that share a sample (tensor parallel) have."""
    name = "data/loaded" if state.signals.ranks("data/loaded") else "data/input"
    seen = side_by_side(state, ranks, name)
    if seen is None or len(seen.steps) < LOOKS:
        return False
    newest = seen.values[:, -LOOKS:]
    return all(len(set(column)) == len(ranks) for column in newest.T.tolist())


def _drawn_alike(state: JobState, ranks: tuple[int, ...], device: str) -> Finding | None:
    stands = alike(state, ranks, f"data/rng{device}", LOOKS)
    before = side_by_side(state, ranks, f"data/drawn{device}") if stands is not None else None
    if stands is None or before is None or len(stands.steps) != len(before.steps):
        return None
    times = min(streak(equal(stands)), streak(equal(before)))
    if times < LOOKS:
        return None
    inside = side_by_side(state, ranks, "data/drawn_inside") if not device else None
    drawn = [before] if inside is None else [before, inside]
    if any((one.values[:, -NEWEST:] < 0).any() for one in drawn):
        return None  # the script seeds at each step, and so knows what it does
    outside_large = _large(before, times, LARGE_OFFSET if device else LARGE)
    if not outside_large and (inside is None or not _large(inside, times, LARGE)):
        return None
    since = int(stands.steps[-times])
    dropout = state.signals.fact(ranks[0], "data/dropout")
    only_dropout = dropout is not None and (bool(device) or not outside_large)
    forward_seen = bool(state.signals.ranks("data/input"))  # else nobody knows what is drawn inside, by what
    what = "drop the same elements" if only_dropout else "draw the same random numbers (masks, noise, dropout)"
    text = (
        f"{words.ranks_text(ranks)} {what} at every step since step {since}: their random number generators stand"
        " alike, so what is random averages over fewer samples than there are ranks"
    )
    if only_dropout:  # as where a trainer seeds all alike by default; what is only worth knowing comes with no fix
        text += f". {_APART}"
    names = ("rng", "dropout" if dropout is not None else "seed", *(dropout[1].split(",") if dropout else ()))
    evidence = Evidence(
        f"the state of the {'CUDA' if device else 'CPU'} generator is equal on all of them after each of {times} steps,"
        " and each step draws of it", "probe", step=since,
    )  # fmt: skip
    cause = Cause("rng", "all ranks were seeded alike, and not apart again", 0.7, Basis.INFERENCE, (evidence,))
    severity = Severity.WARNING if forward_seen and not only_dropout else Severity.INFO
    return Finding(
        "divergence.data", severity, ranks, words.shortened(text), (cause,),
        names=names, step=since, sure=True, goes_on=True, key=f"rng:{ranks[0]}",
    )  # fmt: skip


def _large(drawn: SideBySide, times: int, least: int) -> bool:
    """Whether nearly each of the newest steps draws more than a decision needs."""
    newest = drawn.values[:, -min(times, NEWEST) :]
    return bool((newest >= least).mean() >= NEARLY)
