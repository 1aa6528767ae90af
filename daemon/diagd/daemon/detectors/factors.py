"""Whether gradients of ranks differ by a factor alone, the same for all tensors: as after clipping by local norms."""

from collections.abc import Sequence

import numpy as np

from diagd.daemon.state.job import JobState

LEAST = 2  # tensors
SPREAD = 1e-4  # of the factors: rounding of norms in float32, or of gradients in half precision
NOT_ONE = 1e-3


def factor(state: JobState, names: Sequence[str], classes: Sequence[Sequence[int]], step: int) -> str:
    """In words, by what factors; empty where they differ otherwise, or nothing is known of it."""
    first, *others = [alike[0] for alike in classes]
    said = []
    for rank in others:
        ratios = [r for name in names if (r := _ratio(state, name, first, rank, step)) is not None]
        if len(ratios) < LEAST or max(ratios) - min(ratios) > SPREAD * max(ratios):
            return ""
        by = float(np.median(ratios))
        if abs(by - 1) < NOT_ONE:
            return ""
        said.append(f"those of rank {rank} are {by:.4g} times those of rank {first} in each of {len(ratios)} tensors")
    return "; ".join(said)


def _ratio(state: JobState, name: str, first: int, rank: int, step: int) -> float | None:
    one, other = norm(state, first, name, step), norm(state, rank, name, step)
    if one is None or other is None or not (0 < one < np.inf and 0 <= other < np.inf):
        return None
    return other / one


def norm(state: JobState, rank: int, name: str, step: int) -> float | None:
    """The norm of a parameter's gradient in that step; None where it was not told."""
    series = state.signals.series(rank, f"grad_norm/{name}")
    if series is None:
        return None
    at = np.flatnonzero(series.steps == step)
    return float(series.values[at[-1]]) if len(at) else None
