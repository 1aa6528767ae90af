"""Which groups the ranks' dumps speak of: one name for one group, and its members."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from diagd.daemon.analyze.dumpfile import RankDump
from diagd.daemon.ranks import rank_ranges

DEFAULT = ("default_pg", "default")  # how torch describes the group that init_process_group makes


@dataclass(slots=True)
class Groups:
    """All groups of a job."""

    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)
    names: dict[int, dict[str, str]] = field(default_factory=dict)  # rank -> its own name for a group -> the one here
    unnamed: set[str] = field(default_factory=set)  # no dump says how many they are: those that have entries are taken
    default: str = ""
    world_size: int = 0

    def of(self, rank: int) -> list[str]:
        """The groups that the rank is in."""
        return [name for name, ranks in self.members.items() if rank in ranks]


def groups_of(dumps: Mapping[int, RankDump], others: Iterable[int] = (), told: int = 0) -> Groups:
    """Put together what each rank says.

    `split_group` can give one name to several groups; those are told apart by their members. gloo's dumps name no
    members: the default group has all ranks, another those that have entries of it.

    Args:
        others: The job's ranks without a dump that could be read.
        told: The number of ranks of the job, as a person gives it; 0 not known.
    """
    found = Groups()
    sets: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for dump in dumps.values():
        for name, ranks in dump.groups.items():
            sets[name].add(tuple(sorted(ranks)))
    users: dict[str, set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        for name in {form.group for form in dump.table.forms} - {""}:
            if not any(rank in ranks for ranks in sets[name]):
                users[name].add(rank)
    found.default = _default(dumps.values())
    sizes = {name: size for dump in dumps.values() for name, size in dump.sizes.items()}
    found.world_size = max(
        told,
        sizes.get(found.default, 0),
        *(rank + 1 for rank in (*dumps, *others)),
        *(ranks[-1] + 1 for several in sets.values() for ranks in several),
    )
    for name, several in sets.items():
        for ranks in several:
            found.members[_name(name, ranks, len(several))] = ranks
    for name, ranks_seen in users.items():
        everyone = name == found.default
        found.members[name] = tuple(range(found.world_size)) if everyone else tuple(sorted(ranks_seen))
        size = max(told, sizes.get(name, 0)) if everyone else sizes.get(name, 0)
        if size != len(found.members[name]):
            found.unnamed.add(name)
    _name_for_each(found, dumps, sets)
    return found


def _default(dumps: Iterable[RankDump]) -> str:
    for dump in dumps:
        for name, description in dump.descriptions.items():
            if description in DEFAULT:
                return name
    return "0"


def _name(name: str, ranks: tuple[int, ...], several: int) -> str:
    return name if several < 2 else f"{name}[{rank_ranges(ranks)}]"


def _name_for_each(found: Groups, dumps: Mapping[int, RankDump], sets: Mapping[str, set[tuple[int, ...]]]) -> None:
    for rank, dump in dumps.items():
        own = found.names.setdefault(rank, {})
        for name in {*dump.groups, *(form.group for form in dump.table.forms)}:
            mine = [ranks for ranks in sets.get(name, ()) if rank in ranks]
            own[name] = _name(name, mine[0], len(sets[name])) if mine else name
            found.descriptions.setdefault(own[name], dump.descriptions.get(name, ""))
