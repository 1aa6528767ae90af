"""Samples that are dealt out along the wrong axis of a mesh: replicas get the same, the parts of one replica others.

What the parts hold in common (norms, biases of row-wise layers) then has gradients of different samples, which nothing
reduces since they should be the same. That is no fault of the reduction.
"""

from diagd.daemon.detectors.differing import Parted
from diagd.daemon.detectors.replicas import alike, equal, replicas_of, side_by_side
from diagd.daemon.state.job import JobState

SEEN = 6  # steps in a row at which replicas had the same input
INPUT = "data/input"


def dealt_across(state: JobState, found: list[Parted]) -> list[Parted]:
    """Those of the tensors that this does not explain."""
    if not found or not any(one.entry.peers for one in found):
        return found
    same = [set(one.ranks) for one in replicas_of(state) if one.wrapper and alike(state, one.ranks, INPUT, SEEN)]
    known: dict[tuple[int, ...], bool] = {}

    def explained(ranks: tuple[int, ...]) -> bool:
        if ranks not in known:
            known[ranks] = len(ranks) > 1 and _holds_parts(state, ranks, same)
        return known[ranks]

    return [one for one in found if not explained(one.entry.peers)] if same else found


def _holds_parts(state: JobState, ranks: tuple[int, ...], same: list[set[int]]) -> bool:
    """Whether these ranks are of as many sets of replicas, each with one input, and have never had one in common."""
    sets = [next((number for number, one in enumerate(same) if rank in one), None) for rank in ranks]
    if None in sets or len(set(sets)) < len(ranks):
        return False
    seen = side_by_side(state, ranks, INPUT)
    return seen is not None and len(seen.steps) >= SEEN and not equal(seen)[-SEEN:].any()
