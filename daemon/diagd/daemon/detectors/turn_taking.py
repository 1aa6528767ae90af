"""Ranks that leave some of them out by intent: these do something else while the others step in a group of their own.

In a regular mesh the groups of one kind make up all ranks together, so that nobody is left out. A group that has no
such counterpart, and in which its members have stepped while the others have not, is for turns: by the number of their
steps these ranks cannot be compared.
"""

from collections.abc import Sequence

from diagd.daemon.detectors import meetings
from diagd.daemon.state.job import JobState

OFTEN = 16  # operations of such a group


def take_turns(state: JobState, ranks: Sequence[int]) -> bool:
    """Whether some of these ranks have made steps without the others, in a group that leaves these out."""
    groups = _own_groups(state, ranks)
    alone = [group for group in groups if not _has_counterparts(group, groups, frozenset(ranks))]
    return bool(alone) and meetings.ever_apart(state, ranks)


def _own_groups(state: JobState, ranks: Sequence[int]) -> set[frozenset[int]]:
    """Those of more than one rank and not of all, in which there were operations."""
    mine = frozenset(ranks)
    return {
        frozenset(group.ranks)
        for rank in ranks
        for group in state.detail(rank).groups
        if len(group.ranks) > 1 and frozenset(group.ranks) < mine and group.enqueued >= OFTEN
    }


def _has_counterparts(group: frozenset[int], groups: set[frozenset[int]], ranks: frozenset[int]) -> bool:
    """Whether groups without any rank of this one make up the rest."""
    others = [other for other in groups if not other & group]
    return group | frozenset().union(*others) >= ranks
