"""Which groups the ranks' dumps speak of: one name for one group, and its members."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from diagd.daemon.analyze.dumpfile import DEFAULT, RankDump
from diagd.daemon.ranks import rank_ranges

Sets = Mapping[str, set[tuple[int, ...]]]  # by name, all lists of members that some dump gives


@dataclass(slots=True)
class Groups:
    """All groups of a job."""

    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)
    names: dict[int, dict[str, str]] = field(default_factory=dict)  # rank -> its own name for a group -> the one here
    unnamed: set[str] = field(default_factory=set)  # no dump says how many they are: those that have entries are taken
    denied: set[tuple[str, int]] = field(default_factory=set)  # a member by others' dumps, by its own in another group
    default: str = ""
    world_size: int = 0
    _by_rank: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))

    def of(self, rank: int) -> list[str]:
        """The groups that the rank is in."""
        return self._by_rank.get(rank, [])

    def add(self, name: str, ranks: tuple[int, ...]) -> None:
        """Take in a group."""
        self.members[name] = ranks
        for rank in ranks:
            self._by_rank[rank].append(name)


def groups_of(dumps: Mapping[int, RankDump], others: Iterable[int] = (), told: int = 0) -> Groups:
    """Put together what each rank says.

    `split_group` can give one name to several groups; those are told apart by their members. gloo's dumps name no
    members: the default group has all ranks, another those that have entries of it.

    Args:
        others: The job's ranks without a dump that could be read.
        told: The number of ranks of the job, as a person gives it; 0 not known.
    """
    sets: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for dump in dumps.values():
        for name, ranks in dump.groups.items():
            sets[name].add(tuple(sorted(ranks)))
    found = Groups(default=_default(dumps.values()))
    sizes = {name: size for dump in dumps.values() for name, size in dump.sizes.items()}
    found.world_size = max(
        told,
        sizes.get(found.default, 0),
        *(rank + 1 for rank in (*dumps, *others)),
        *(ranks[-1] + 1 for several in sets.values() for ranks in several),
    )
    users = _name_for_each(found, dumps, sets)
    for name, several in sets.items():
        for ranks in several:
            found.add(_name(name, ranks, sets), ranks)
    _add_unnamed(found, users, sizes, told)
    _note_denied(found, dumps, sets)
    return found


def _default(dumps: Iterable[RankDump]) -> str:
    for dump in dumps:
        for name, description in dump.descriptions.items():
            if description in DEFAULT:
                return name
    return "0"


def _name(name: str, ranks: tuple[int, ...], sets: Sets) -> str:
    return name if len(sets[name]) < 2 else f"{name}[{rank_ranges(ranks)}]"


def _name_for_each(found: Groups, dumps: Mapping[int, RankDump], sets: Sets) -> dict[str, set[int]]:
    """Each rank's own names; returns the ranks that use a group of which no dump gives them as members."""
    users: dict[str, set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        own = found.names.setdefault(rank, {})
        for name in {*dump.groups, *(form.group for form in dump.table.forms)}:
            given = sorted(ranks for ranks in sets.get(name, ()) if rank in ranks)
            if name in dump.groups:
                given = [tuple(sorted(dump.groups[name]))]
            own[name] = _name(name, given[0], sets) if given else f"{name}[?]" if name in sets else name
            found.descriptions.setdefault(own[name], dump.descriptions.get(name, ""))
            if not given and name:
                users[own[name]].add(rank)
    return users


def _add_unnamed(found: Groups, users: Mapping[str, set[int]], sizes: Mapping[str, int], told: int) -> None:
    for name, ranks in users.items():
        everyone = name == found.default
        found.add(name, tuple(range(found.world_size)) if everyone else tuple(sorted(ranks)))
        size = max(told, sizes.get(name, 0)) if everyone else sizes.get(name, 0)
        if size != len(found.members[name]):
            found.unnamed.add(name)


def _note_denied(found: Groups, dumps: Mapping[int, RankDump], sets: Sets) -> None:
    """Dumps of two jobs in one folder, say: the older ones' ranks are no members of the newer groups."""
    for name, several in sets.items():
        for ranks in several if len(several) > 1 else ():
            here = _name(name, ranks, sets)
            for rank in ranks:
                if rank in dumps and found.names[rank].get(name, here) != here:
                    found.denied.add((here, rank))
