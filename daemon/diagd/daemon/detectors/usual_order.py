"""A tie within one group that its own order breaks: one side goes on as all ranks always did, the other comes to what
no rank ever came to, as a gather that one rank alone logs by.

That can also be what all were to come to for the first time, and one side has not: so it is inferred, and said so.
"""

from collections.abc import Sequence
from itertools import pairwise

from diagd.daemon.detectors import rounds
from diagd.daemon.detectors.history import AGREED_BEFORE
from diagd.daemon.detectors.ledger import Signature
from diagd.daemon.detectors.scene import Scene

LATE = 4  # places at a group's beginning of which nothing may be known, as before the recorder was there


def out_of_order(scene: Scene, group: str, seq: int, sides: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The ranks on the sides that are new to the group, where all others are on one that repeats its usual order.

    None where that order is not known from its beginning: what is done once an epoch is not new for being long ago. Nor
    where the sides are in the same operation: its size may be new with any sample.
    """
    members = [rank for ranks in sides for rank in ranks]
    before, whole = _order(scene, group, seq, members)
    before = before if whole else {}
    now = scene.ledger.signatures(group, seq, members)
    if not before or len({now[ranks[0]][0] for ranks in sides}) < len(sides):
        return ()
    usual = [ranks for ranks in sides if _follows(before, now[ranks[0]]) >= AGREED_BEFORE]
    others = [ranks for ranks in sides if ranks not in usual]
    if len(usual) != 1 or any(_was_before(scene, group, seq, ranks[0], before) for ranks in others):
        return ()
    return tuple(sorted(rank for ranks in others for rank in ranks))


def off_the_rounds(scene: Scene, group: str, seq: int, sides: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The ranks on the sides that leave the rounds which all have kept, where one side is in what is due in them.

    What is done once in many rounds is not among those that are known, as an evaluation: so it is inferred, too.
    """
    members = [rank for ranks in sides for rank in ranks]
    before, _ = _order(scene, group, seq, members)
    now = scene.ledger.signatures(group, seq, members)
    if len({now[ranks[0]][0] for ranks in sides}) < len(sides):
        return ()
    due = rounds.due([_key(before[place]) for place in sorted(before)])
    usual = [ranks for ranks in sides if _key(now[ranks[0]]) == due]
    return tuple(sorted(rank for ranks in sides if ranks not in usual for rank in ranks)) if len(usual) == 1 else ()


def _key(signature: Signature) -> tuple[str, int]:
    return signature[0], -1 if signature[2] is None else signature[2]


def _order(scene: Scene, group: str, seq: int, members: Sequence[int]) -> tuple[dict[int, Signature], bool]:
    """What these ranks have all entered at the places before that one, without a gap; and whether from the first on.

    Nothing where they did not all enter the same there.
    """
    found: dict[int, Signature] = {}
    for place in range(seq - 1, 0, -1):
        entered = scene.ledger.signatures(group, place, members)
        if len(entered) < len(members):
            return found, place <= LATE
        first = next(iter(entered.values()))
        if not all(_alike(first, one) for one in entered.values()):
            return {}, False
        found[place] = first
    return found, True


def _follows(before: dict[int, Signature], now: Signature) -> int:
    """How often such an operation came after one like the last."""
    last = before[max(before)]
    return sum(_alike(first, last) and _alike(then, now) for then, first in pairwise(before.values()))


def _was_before(scene: Scene, group: str, seq: int, rank: int, before: dict[int, Signature]) -> bool:
    """Whether the rank's operation was done before, as far as is known from the same line."""
    now = scene.ledger.signatures(group, seq, [rank])[rank]
    line = _line(scene, group, seq, rank)
    lines = {place: _line(scene, group, place, rank) for place, one in before.items() if _alike(one, now)}
    return any(None in (line, theirs) or line == theirs for theirs in lines.values())


def _line(scene: Scene, group: str, place: int, rank: int) -> tuple[str, int] | None:
    op = scene.ledger.at(group, place, rank)
    return (op.site.file, op.site.line) if op is not None and op.site is not None else None


def _alike(first: Signature, second: Signature) -> bool:
    """Whether they are the same, as far as is known of both."""
    return all(a is None or b is None or a == b for a, b in zip(first, second, strict=True))
