"""Groups that are one dimension of a mesh: alike in shape, of other ranks, and made in the same turn."""

from collections import Counter
from collections.abc import Iterable

from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Detail

# The ranks' distances from the first, and which it is of a rank's groups of that shape.
Family = tuple[tuple[int, ...], int]


def families(detail: Detail) -> dict[str, Family]:
    """The family of each of the rank's groups, by the group's name."""
    made: Counter[tuple[int, ...]] = Counter()
    found = {}
    for group in detail.groups:
        shape = tuple(rank - group.ranks[0] for rank in group.ranks)
        found[group.name] = (shape, made[shape])
        made[shape] += 1
    return found


def siblings(scene: Scene, group: str, members: Iterable[int]) -> dict[int, str]:
    """Ranks outside the group that are in one of its family, and the name of theirs."""
    mine = {families(scene.state.detail(r)).get(group) for r in members if r in scene.state.details} - {None}
    if len(mine) != 1:
        return {}
    family, inside = mine.pop(), set(members)
    found = {}
    for rank, detail in scene.state.details.items():
        name = next((name for name, one in families(detail).items() if one == family), None)
        if rank not in inside and name is not None and name != group:
            found[rank] = name
    return found
