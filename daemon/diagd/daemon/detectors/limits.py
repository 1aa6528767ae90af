"""Gradients that are equal on all ranks, and clipped to another norm on some of them, or on some alone.

Each rank's call returns the same norm, as what is clipped is reduced already: nothing but the limit is a rank's own.
"""

from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import GOES_ON, Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.replicas import side_by_side
from diagd.daemon.state.job import JobState
from diagd.daemon.steps import since_text

LIMIT, NORM = "clip_norm/limit", "clip_norm"
TIMES = 2  # told steps at which they differ, the newest among them
SAME = 1e-6  # relative
CLOSE = 1e-3  # relative: norms of one and the same gradient, whatever the order in which they were added up
NEVER = float("inf")  # it does not clip
EXPLAINS = ("divergence.parameter", "divergence.gradient", "divergence.optimizer")


class Limits(NamedTuple):
    """The limits by rank at `since`, the first step of which they were told apart; infinite where it does not clip."""

    by_rank: dict[int, float]
    since: int
    may_since: int  # the first step in which they may have been


def limits_apart(state: JobState, ranks: tuple[int, ...]) -> Limits | None:
    """None where they are equal, or not known."""
    told = tuple(rank for rank in ranks if (one := state.signals.series(rank, LIMIT)) is not None and len(one))
    if not told:
        return None
    if len(told) < len(ranks):
        return _by_some(state, ranks, told)
    seen, norms = (side_by_side(state, ranks, name, recent=None) for name in (LIMIT, NORM))
    if seen is None or norms is None or len(seen.steps) < TIMES or not np.isfinite(seen.values).all():
        return None
    high = seen.values.max(axis=0)
    differ = high - seen.values.min(axis=0) > SAME * np.abs(high)
    if not differ[-TIMES:].all():
        return None
    equal = np.flatnonzero(~differ)
    at = int(equal[-1]) + 1 if len(equal) else 0
    since, may_since = int(seen.steps[at]), int(seen.steps[at - 1]) + 1 if at else 1
    first = norms.values[:, norms.steps >= since][:, :1]
    if first.size and first.max() - first.min() > CLOSE * np.abs(first).max():
        return None  # each clips gradients of its own
    if not any(_binds(state, rank, since) for rank in ranks):
        return None
    return Limits(dict(zip(ranks, seen.values[:, at].tolist(), strict=True)), since, may_since)


def _binds(state: JobState, rank: int, since: int) -> bool:
    """Whether its limit has made gradients any shorter: some call it with a large one, to log what it returns."""
    seen = side_by_side(state, (rank,), NORM, recent=None), side_by_side(state, (rank,), LIMIT, recent=None)
    if seen[0] is None or seen[1] is None:
        return False
    steps = np.intersect1d(seen[0].steps, seen[1].steps)
    steps = steps[steps >= since]
    norm, limit = (one.values[0][np.isin(one.steps, steps)] for one in seen if one is not None)
    return bool((norm > limit).any())


def _by_some(state: JobState, ranks: tuple[int, ...], told: tuple[int, ...]) -> Limits | None:
    """Of ranks that have clipped several times while others, of which gradients are known, never have."""
    others = tuple(rank for rank in ranks if rank not in told)
    seen = [one for rank in others if (one := state.signals.series(rank, "grad_norm")) is not None and len(one)]
    limits = {rank: state.signals.series(rank, LIMIT) for rank in told}
    since = max(int(one.steps[0]) for one in limits.values() if one is not None)
    known = len(seen) == len(others) and all(one.steps[-1] >= since for one in seen)
    if not known or any(one is None or len(one) < TIMES for one in limits.values()):
        return None
    if not all(_binds(state, rank, since) for rank in told):
        return None
    by_rank = {rank: float(one.values[0]) if (one := limits.get(rank)) is not None else NEVER for rank in ranks}
    return Limits(by_rank, since, since)


def limits_finding(found: Limits) -> Finding:
    """What to say of them."""
    classes: dict[float, list[int]] = {}
    for rank, limit in found.by_rank.items():
        classes.setdefault(limit, []).append(rank)
    ordered = sorted(classes.items(), key=lambda one: (-len(one[1]), one[1]))
    odd, _ = minority([ranks for _, ranks in ordered])
    said = ", ".join(f"{_limit(limit)} on {words.ranks_text(ranks)}" for limit, ranks in ordered[:4])
    text = (
        f"{words.ranks_text(found.by_rank)} clip the same gradients to different norms ({said}),"
        f" {since_text(found.may_since, found.since)}{GOES_ON}, with updates that differ between ranks"
    )
    why = "max_norm of clip_grad_norm_ is a rank's own, or only some ranks call it; the gradients themselves are equal"
    told = tuple(Evidence(f"clipped to: {_limit(limit)}", "signals", rank, found.since)
                 for rank, limit in list(found.by_rank.items())[:8])  # fmt: skip
    return Finding(
        "divergence.gradient", Severity.CRITICAL, odd, words.shortened(text),
        (Cause("limits", why, 0.9, Basis.OBSERVATION, told),), names=("clip_grad_norm_", "max_norm"), step=found.since,
        sure=True, goes_on=True, key="limits", explains=EXPLAINS,
    )  # fmt: skip


def _limit(limit: float) -> str:
    return "none" if limit == NEVER else f"{limit:.6g}"
