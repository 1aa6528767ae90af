"""A rank that has issued more, or fewer, operations of one group than the others by the same place of another group.

In a mesh all ranks run one program, each in a group of every dimension: as they come to an operation of one dimension,
they have issued equally many of each other. Operations pair by their order alone, so after one call too many the later
ones still meet, perhaps for many steps, until two meet that cannot. By then where the ranks stand tells nothing of who
called it; what they had issued by the same places does, also where C++ issues all and no call is seen.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from diagd.daemon.detectors.families import Family, families
from diagd.daemon.detectors.history import AGREED_BEFORE
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail

ASTRAY = "astray"  # the key of such a cause
VOTERS = 32  # ranks whose entries are counted
MUCH = 2  # times as many

Counts = dict[int, int]  # by an operation's place in one group, how many of another group had been issued


@dataclass(frozen=True, slots=True)
class Stray:
    """How many more operations of `group` a rank has issued than the others had by operation `seq` of `other`."""

    rank: int
    more: int  # negative: fewer
    group: str
    other: str
    seq: int
    places: int  # of `other`, at which it was seen so

    @property
    def said(self) -> str:
        """In words that follow "rank 3 has"."""
        count = f"{abs(self.more)} {'more' if self.more > 0 else 'fewer'} operation{'s' * (abs(self.more) != 1)}"
        return f"issued {count} of group {self.group} than the others, since #{self.seq} of group {self.other}"


def strayed(state: JobState) -> tuple[Stray, ...]:
    """Those that were found in this attempt while the job ran on; rings of long ago may have lost what told it."""
    return state.strayed[1] if state.strayed is not None and state.strayed[0] == state.attempt else ()


def waited_in(waits: Mapping[int, Wait]) -> dict[str, tuple[int, ...]]:
    """The groups in whose collectives these ranks wait, with their members."""
    return {wait.op.group: wait.members for wait in waits.values() if wait.kind == "collective" and wait.op.seq > 0}


def astray(scene: Scene, groups: Mapping[str, tuple[int, ...]]) -> tuple[Stray, ...]:
    """Of the members of several groups those that went another way; none where that is not known.

    Each has agreed with most ranks at so many places that this is no chance, and another rank of its own group still
    does: what only one half of a mesh does, such as an evaluation, is nobody's mistake.
    """
    if len(groups) < 2:
        return ()
    tracks = {rank: _Track(scene.state.detail(rank)) for rank in _voters(scene, groups)}
    found = [
        strays
        for group, members in groups.items()
        for other in _others(tracks, group, members)
        if (strays := _odd(tracks, group, members, other))
    ]
    if len({tuple(stray.rank for stray in strays) for strays in found}) != 1:
        return ()
    longest = max(strays[0].places for strays in found)
    clear = (strays for strays in found if MUCH * strays[0].places >= longest)  # what it brings with it shows later
    return max(clear, key=lambda strays: strays[0].more)  # one too few here is one too many there


def _voters(scene: Scene, groups: Mapping[str, tuple[int, ...]]) -> list[int]:
    near = sorted({member for members in groups.values() for member in members})
    return [r for r in [*near, *sorted(set(scene.state.details) - set(near))] if r in scene.state.details][:VOTERS]


class _Track:
    """What a rank has issued, by families of groups, in its own order."""

    def __init__(self, detail: Detail) -> None:
        self.families = families(detail)
        self.names = {family: name for name, family in self.families.items()}
        known = [(self.families[op.group], op.seq) for op in detail.recorder
                 if op.seq > 0 and not op.p2p and op.group in self.families]  # fmt: skip
        self._order = list(dict.fromkeys(known))
        self.used = {family for family, _ in self._order}

    def issued(self, family: Family, at: Family) -> Counts:
        """How many of a family the rank had issued at each place of another's order."""
        found, count = {}, 0
        for one, seq in self._order:
            if one == family:
                count = seq
            elif one == at and count:
                found[seq] = count
        return found

    def latest(self, family: Family) -> int:
        """The last that it has issued of a family."""
        return max((seq for one, seq in self._order if one == family), default=0)


Tracks = Mapping[int, _Track]


def _others(tracks: Tracks, group: str, members: tuple[int, ...]) -> list[Family]:
    first = next((tracks[r] for r in members if r in tracks and group in tracks[r].families), None)
    return sorted(first.used - {first.families[group]}) if first is not None else []


def _odd(tracks: Tracks, group: str, members: tuple[int, ...], other: Family) -> tuple[Stray, ...]:
    """The members of the group that have left the others' way, where some have not, and no rank of another group has.

    What ranks of one place in their groups do beside, as those that log, is their part and nobody's mistake.
    """
    family = next(tracks[r].families[group] for r in members if r in tracks and group in tracks[r].families)
    counts = {r: found for r, track in tracks.items() if (found := track.issued(family, other))}
    if sum(r in counts for r in members) < 2:
        return ()
    start = max(min(found) for found in counts.values())
    grown = {r: {at: n - found[start] for at, n in found.items() if at >= start}
             for r, found in counts.items() if start in found}  # fmt: skip
    usual = _usual(grown)
    parted = {r: _parted(found, usual, tracks[r].latest(family) - counts[r][start]) for r, found in grown.items()}
    odd = {r: at for r, at in parted.items() if at is not None and at[0] != 0}
    stayed = any(at is not None and at[0] == 0 for r, at in parted.items() if r in members)
    if not odd or not stayed or not set(odd) <= set(members):
        return ()
    return tuple(Stray(r, more, group, tracks[r].names[other], *at) for r, (more, *at) in sorted(odd.items()))


def _usual(grown: Mapping[int, Counts]) -> dict[int, int | None]:
    """What most ranks had issued by each place, two at least; None where three or more came there and no most agree."""
    votes: dict[int, Counter[int]] = {}
    for found in grown.values():
        for at, count in found.items():
            votes.setdefault(at, Counter())[count] += 1
    usual: dict[int, int | None] = {}
    for at, cast in votes.items():
        count, ranks = cast.most_common(1)[0]
        most = ranks >= 2 and 2 * ranks > cast.total()
        if most or cast.total() > 2:
            usual[at] = count if most else None
    return usual


def _parted(mine: Counts, usual: Mapping[int, int | None], latest: int) -> tuple[int, int, int] | None:
    """By how many operations a rank has parted from what is usual for good, where, and at how many places; else zeros.

    None where it agreed at too few places, or not from the first, and where none is usual. A rank that has already
    issued more than the others had by the next place has parted there.
    """
    if any(at in usual and usual[at] is None for at in mine):
        return None
    apart = [(at, mine[at] - count) for at in sorted(mine) if (count := usual.get(at)) is not None]
    ahead = max(mine, default=0) + 1
    if (count := usual.get(ahead)) is not None and latest > count:
        apart.append((ahead, latest - count))
    first = next((n for n, (_, more) in enumerate(apart) if more), len(apart))
    if first < AGREED_BEFORE or not all(more for _, more in apart[first:]):
        return None
    if first == len(apart):
        return 0, 0, 0
    at, more = apart[first]
    return more, at, len(apart) - first
