"""Keys of the store that ranks wait for: which of them nobody has set, and whose they are by keys like them."""

import re
from collections.abc import Iterable, Mapping, Sequence

from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Operation

_NUMBER = re.compile(r"\d+")
KNOWN_RANKS = 2  # that must have set keys with their own number at one place


def unset(scene: Scene, op: Operation) -> tuple[str, ...]:
    """Those of an operation's keys that no rank was seen to set; all where each was, as some sets are not seen."""
    keys = tuple(op.detail.split(", "))
    known = {one.detail for _, one in sets(scene)}
    return tuple(key for key in keys if key not in known) or keys


def grouped(scene: Scene, waits: Mapping[str, Sequence[int]]) -> list[tuple[int, ...]]:
    """Ranks by what they wait for: those that miss a key together are one fault.

    Args:
        waits: Ranks by the detail of the operation that they wait in.
    """
    found: list[tuple[set[str], set[int]]] = []
    for detail, ranks in waits.items():
        wait = scene.graph.wait(ranks[0])
        missing = {detail} if wait is None or wait.op.name == "STORE_JOIN" else set(unset(scene, wait.op))
        alike = [one for one in found if one[0] & missing]
        found = [one for one in found if one not in alike]
        # What all of them miss is what is wrong; each may miss more that comes only when the others go on.
        found.append((missing.intersection(*(keys for keys, _ in alike)), set(ranks).union(*(r for _, r in alike))))
    return [tuple(sorted(ranks)) for _, ranks in found]


def missed(scene: Scene, ops: Iterable[Operation]) -> tuple[str, ...]:
    """The keys that all of these operations wait for in vain; those of each where they have none in common."""
    each = [unset(scene, op) for op in ops]
    common = tuple(key for key in each[0] if all(key in keys for keys in each))
    return common or tuple(dict.fromkeys(key for keys in each for key in keys))


def owner(scene: Scene, key: str, ranks: Sequence[int]) -> int | None:
    """The rank that should have set it: where in keys like it the number at one place has always been the setter's.

    Args:
        ranks: Who waits for it, and so does not set it.
    """
    numbers = [int(number) for number in _NUMBER.findall(key)]
    alike = [
        ([int(number) for number in _NUMBER.findall(op.detail)], rank)
        for rank, op in sets(scene)
        if _NUMBER.sub("#", op.detail) == _NUMBER.sub("#", key)
    ]
    if len({rank for _, rank in alike}) < KNOWN_RANKS:
        return None
    places = [place for place in range(len(numbers)) if all(found[place] == rank for found, rank in alike)]
    named = {numbers[place] for place in places} - set(ranks)
    return named.pop() if len(named) == 1 and named <= set(scene.state.ranks()) else None


def not_to_come(scene: Scene, groups: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
    """Of ranks that wait for keys those that wait for nobody who waits: the others' keys come once these go on.

    The next number of a series that one rank alone has set is that rank's to set; one that the series has passed by is
    nobody's. Not all that was set need be known yet: of one series the lowest that is waited for is the one to come
    first. All of them, where none is left.
    """
    stuck = [ranks for ranks in groups if not _comes(scene, ranks, {rank for other in groups for rank in other})]
    return _lowest(scene, stuck or groups)


def _lowest(scene: Scene, groups: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
    """Without those that wait for a later number of a series for which others wait too."""
    series: dict[tuple[str, int], list[tuple[int, tuple[int, ...]]]] = {}
    kept = []
    for ranks in groups:
        wait = scene.graph.wait(ranks[0])
        (key, *more) = unset(scene, wait.op) if wait is not None else ("",)
        setter = _next_of(scene, key) if not more else None
        if setter is None:
            kept.append(ranks)
        else:
            stem, number = parted(key)
            series.setdefault((stem, setter), []).append((number, ranks))
    return [*kept, *(min(waiting)[1] for waiting in series.values())]


def _comes(scene: Scene, ranks: tuple[int, ...], all_: set[int]) -> bool:
    wait = scene.graph.wait(ranks[0])
    setters = {_next_of(scene, key) for key in unset(scene, wait.op)} if wait is not None else {None}
    return all(setter is not None and _waits_for(scene, setter, all_) for setter in setters)


def _next_of(scene: Scene, key: str) -> int | None:
    """The rank that has set all keys like it, each with a smaller number at its end."""
    stem, number = parted(key)
    series = [(rank, parted(op.detail)[1]) for rank, op in sets(scene) if parted(op.detail)[0] == stem]
    ranks = {rank for rank, _ in series}
    return ranks.pop() if number >= 0 and len(ranks) == 1 and all(0 <= set_ < number for _, set_ in series) else None


def parted(key: str) -> tuple[str, int]:
    """A key and the number at its end; -1 where there is none."""
    stem = key.rstrip("0123456789")
    return stem, int(key[len(stem) :] or -1)


def _waits_for(scene: Scene, rank: int, others: set[int]) -> bool:
    """Whether the rank waits, in the end, for one of these."""
    return any(rank in scene.graph.waiting_for((other,)) for other in others)


def sets(scene: Scene) -> list[tuple[int, Operation]]:
    """What each rank was seen to set, with the rank."""
    details = scene.state.details.items()
    return [(rank, op) for rank, detail in details for op in detail.history if op.name == "STORE_SET"]
