"""A tie within one group of a mesh: which side does what the other groups of that dimension do at the same place."""

from collections.abc import Mapping, Sequence

from diagd.daemon.detectors.families import siblings
from diagd.daemon.detectors.history import AGREED_BEFORE, LOOKS_BACK
from diagd.daemon.detectors.ledger import Signature
from diagd.daemon.detectors.scene import Scene


def against_mesh(scene: Scene, group: str, seq: int, sides: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The ranks on the sides that no other group of the dimension agrees with, where all others agree with one side.

    None where the groups have not always done alike, place by place: with samples of different lengths they never do.
    Nor where that side's size is new to its group as well: from there on sizes may differ from sample to sample.
    """
    members = [rank for ranks in sides for rank in ranks]
    others = siblings(scene, group, members)
    if len(others) < 2 or not _always_alike(scene, group, seq, members, others):
        return ()
    usual = _one(scene, others, seq)
    mine = {ranks[0]: _one(scene, dict.fromkeys(ranks, group), seq) for ranks in sides}
    like = [ranks for ranks in sides if usual is not None and mine[ranks[0]] == usual]
    if len(like) != 1 or (_differ_in_size(mine) and not _was_before(scene, group, seq, like[0])):
        return ()
    return tuple(sorted(rank for ranks in sides if ranks is not like[0] for rank in ranks))


def _always_alike(scene: Scene, group: str, seq: int, members: Sequence[int], others: dict[int, str]) -> bool:
    places = range(seq - AGREED_BEFORE, seq)
    everyone = {**dict.fromkeys(members, group), **others}
    return places[0] > 0 and all(_one(scene, everyone, place) is not None for place in places)


def _differ_in_size(sides: Mapping[int, Signature | None]) -> bool:
    """Whether all do the same, with another number of elements."""
    return len({side[:2] for side in sides.values() if side is not None}) == 1


def _was_before(scene: Scene, group: str, seq: int, ranks: Sequence[int]) -> bool:
    """Whether these ranks have done just this in an earlier place of the group's order."""
    now = _one(scene, dict.fromkeys(ranks, group), seq)
    first = max(seq - LOOKS_BACK, 0)
    return any(_one(scene, dict.fromkeys(ranks, group), place) == now for place in range(seq - 1, first, -1))


def _one(scene: Scene, groups: dict[int, str], seq: int) -> Signature | None:
    """What these ranks entered at that place of their groups' orders; None where it differs or is not known of all."""
    found: dict[int, Signature] = {}
    for name in set(groups.values()):
        found |= scene.ledger.signatures(name, seq, [rank for rank, group in groups.items() if group == name])
    return next(iter(found.values())) if len(found) == len(groups) and len(set(found.values())) == 1 else None
