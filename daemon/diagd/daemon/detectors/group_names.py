"""Groups that the summary calls by torch's number: who is in them, and what the script calls them."""

import re
from dataclasses import replace

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Group

_GROUP = re.compile(r"\bgroup (\d+)\b(?! \(| is )")
_NO_NAMES = frozenset({"", "undefined", "default_pg"})  # torch's own, where the script gives none
_OF_MESH = "mesh_"  # before the dimension's name: DeviceMesh puts it there
LONGEST = 30  # characters of members that are written out


def with_members(state: JobState, finding: Finding) -> Finding:
    """The same, with the members of each smaller group at its first mention: the number alone tells nobody."""
    if not finding.summary or finding.kind.startswith(("training.", "numerics.", "memory.")):
        return finding
    told: set[str] = set()

    def named(found: re.Match[str]) -> str:
        name = found[1]
        group = None if name in told else _of(state, finding, name)
        told.add(name)
        return found[0] if group is None else f"{found[0]} ({_said(group)})"

    return replace(finding, summary=_GROUP.sub(named, finding.summary))


def _of(state: JobState, finding: Finding, name: str) -> Group | None:
    """The group of that number; None where it is all ranks', or where those involved mean different ones by it."""
    known = {
        group.ranks: group
        for rank in (*finding.ranks, *finding.waiting_ranks)
        if rank in state.details and (group := state.detail(rank).group(name)) is not None
    }
    group = next(iter(known.values())) if len(known) == 1 else None
    return None if group is None or not 0 < len(group.ranks) < state.world_size else group


def _said(group: Group) -> str:
    members = words.ranks_text(group.ranks)
    members = members if len(members) <= LONGEST else f"{len(group.ranks)} ranks"
    name = group.description.removeprefix(_OF_MESH)
    return members if name in _NO_NAMES else f"{name}: {members}"
