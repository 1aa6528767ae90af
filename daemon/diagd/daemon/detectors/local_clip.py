"""Gradients of shards that each rank has clipped by the norm of its own shard: parts of a model learn at other rates.

Clipped by the norm of all shards, those of one group together have at most the limit as their norm, and all are scaled
by one factor. Clipped each by its own, several of them stand at the limit at once.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.replicas import side_by_side
from diagd.daemon.state.job import JobState
from diagd.daemon.state.tensors import TensorInfo

STEPS = 5  # at which it must be so
CLOSE = 5e-3  # what clipping adds to the norm before it divides (1e-6), and rounding
BEYOND = 1.02  # times the limit: it was clipped, whatever the norm was taken over
OWN = 0.99, 1.01  # a norm that is the root of the number of elements comes of signs, not of clipping
Floats = NDArray[np.float64]


class Shards(NamedTuple):
    """Ranks that each hold a part of the same trained tensors."""

    ranks: tuple[int, ...]
    names: tuple[str, ...]
    elements: dict[int, int]  # on each rank
    whole: bool  # they train nothing else


def local_clip(state: JobState) -> Iterator[Finding]:
    """One finding for each group of ranks whose shards were clipped so."""
    for shards in shards_of(state):
        found = _by_returned(state, shards) or _by_limit(state, shards)
        if found is not None:
            yield found


def shards_of(state: JobState) -> list[Shards]:
    """As wrappers and meshes declare them; a flat parameter may be split where one tensor ends and the next begins."""
    held: dict[str, dict[str, dict[int, TensorInfo]]] = {}  # by what is split, and by name
    others: set[int] = set()
    for entry in state.tensors.entries:
        info = next(iter(entry.infos.values()), None) if entry.kind == "parameter" else None
        if info is None or not info.owned:
            continue
        if info.local and info.placement.startswith(("fsdp", "dtensor")):
            split = entry.name.partition(".")[0] if info.placement.startswith("fsdp") else entry.name
            held.setdefault(split, {}).setdefault(entry.name, {}).update(entry.infos)
        else:
            others.update(entry.infos)
    together: dict[tuple[int, ...], dict[str, dict[int, TensorInfo]]] = {}
    for tensors in held.values():
        ranks = tuple(sorted({rank for infos in tensors.values() for rank in infos}))
        together.setdefault(ranks, {}).update(tensors)
    return [_shards(ranks, found, not others & {*ranks}) for ranks, found in together.items() if len(ranks) > 1]


def _shards(ranks: tuple[int, ...], tensors: dict[str, dict[int, TensorInfo]], whole: bool) -> Shards:
    elements = dict.fromkeys(ranks, 0)
    for infos in tensors.values():
        for rank, info in infos.items():
            elements[rank] += _size(info)
    return Shards(ranks, tuple(tensors), elements, whole)


def _size(info: TensorInfo) -> int:
    return int(np.prod(info.shape, dtype=np.int64))


def _by_returned(state: JobState, shards: Shards) -> Finding | None:
    """What clip_grad_norm_ has returned on each rank is the norm of what that rank has."""
    names = "clip_norm", "clip_norm/limit", "grad_norm"
    seen = [side_by_side(state, shards.ranks, name, recent=None) for name in names]
    if seen[0] is None or seen[1] is None or seen[2] is None:
        return None
    steps = np.intersect1d(np.intersect1d(seen[0].steps, seen[1].steps), seen[2].steps)
    returned, limit, after = (one.values[:, np.isin(one.steps, steps)] for one in seen if one is not None)
    clipped = (returned > BEYOND * limit).any(axis=0)
    own = _near(after, np.minimum(returned, limit)) & (returned > 0)
    met = clipped & (own.sum(axis=0) >= 2) & (own | (returned == 0)).all(axis=0)
    met &= ~_near(returned, returned[:1]).all(axis=0)
    if met.sum() < STEPS:
        return None
    at = int(np.flatnonzero(met)[0])
    norms = ", ".join(f"{v:.4g} on rank {r}" for r, v in zip(shards.ranks[:4], returned[:4, at], strict=False))
    whole = float(np.sqrt((returned[:, at] ** 2).sum()))
    said = f"clip_grad_norm_ returned {norms}; over all shards the norm is {whole:.4g}, the limit {limit[0, at]:.4g}"
    return _finding(shards, int(steps[at]), said, int(met.sum()), Basis.OBSERVATION, 0.95)


def _by_limit(state: JobState, shards: Shards) -> Finding | None:
    """Gradients of two shards and more that have the same largest norm, again and again; replicated ones would too."""
    seen = side_by_side(state, shards.ranks, "grad_norm", recent=None)
    if seen is None or not len(seen.steps) or not shards.whole or not np.isfinite(seen.values).all():
        return None
    top = float(seen.values.max())
    signs = any(OWN[0] < top * top / max(shards.elements[rank], 1) < OWN[1] for rank in shards.ranks)
    met = _near(seen.values, np.full_like(seen.values, top)).sum(axis=0) >= 2
    if met.sum() < STEPS or top <= 0 or signs:
        return None
    at = int(np.flatnonzero(met)[0])
    said = f"the gradients of several shards have the norm {top:.4g} at once, and none is ever larger"
    return _finding(shards, int(seen.steps[at]), said, int(met.sum()), Basis.INFERENCE, 0.7)


def _near(values: Floats, others: Floats) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.abs(values - others) <= CLOSE * np.abs(others)
    return found


def _finding(shards: Shards, step: int, said: str, times: int, basis: Basis, confidence: float) -> Finding:
    ranks = shards.ranks
    text = (
        f"{words.ranks_text(ranks)} clip the gradients of their shards each by its own norm (clip_grad_norm_ over local"
        f" shards): {said}. The run goes on, with parts of the model that learn at different rates"
    )
    cause = Cause(
        "local_norm", "the norm was taken over the part of the gradients that lies on the rank, and not over all ranks'"
        " parts", confidence, basis, (Evidence(f"{said}; so at {times} of the steps", "probe", ranks[0], step),),
    )  # fmt: skip
    return Finding(
        "divergence.gradient", Severity.CRITICAL if basis is Basis.OBSERVATION else Severity.WARNING, ranks,
        words.shortened(text), (cause,), names=("grad_norm", "clip_grad_norm_", *shards.names[:18]), step=step,
        sure=True, goes_on=True, key=f"local_norm:{ranks[0]}",
    )  # fmt: skip
