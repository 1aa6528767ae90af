"""Ranks' dumps as the state of a job: the same state that agents' reports make, and the same detectors read."""

from collections import defaultdict
from collections.abc import Mapping

from diagd.daemon.analyze.compare import Comparison, compare
from diagd.daemon.analyze.dumpfile import RankDump
from diagd.daemon.analyze.groups import Groups, groups_of
from diagd.daemon.state.job import OTHERS, JobState
from diagd.daemon.state.model import Detail, Facts, Group, Operation, Status

CLOCKS_APART_S = 1.0  # a file's time and a rank's own clock agree no better, where machines differ

NO_DUMP = "left no dump"
LOST_ENTRIES = "has lost its older entries of it"
TOO_EARLY = "was dumped before the others entered it"
OTHER_GROUP = "has a dump in which that group has other members, so it may be of another job"
UNNAMED = "no dump names its members"
GIVEN_UP = (
    "has a dump that ends before an operation that has ended elsewhere: it was taken earlier, or that operation was "
    "given up, which gloo marks alike"
)
OLDER = "has a dump that is older than the others'"


def state_of(
    dumps: Mapping[int, RankDump], unread: Mapping[int, str], *, job_id: str, hang_after_s: float, world_size: int = 0
) -> tuple[JobState, Comparison, Groups]:
    """The job's state as these dumps show it.

    Args:
        unread: Ranks whose files could not be read, and why.
        world_size: Where the dumps do not name it; 0 not known.
    """
    groups = groups_of(dumps, unread, world_size)
    found = compare(dumps, groups)
    state = JobState(job_id=job_id, hang_after_s=hang_after_s, from_dumps=True, world_size=groups.world_size)
    newest_s = max((op.entered_s for ops in found.kept.values() for op in ops), default=0.0)
    now_s = max(newest_s, *(dump.taken_s for dump in dumps.values()))
    for rank, dump in sorted(dumps.items()):
        ops = found.kept[rank]
        waits = any(op.retired is False for op in ops)
        facts = Facts(
            rank, status=Status.BLOCKED if waits else Status.RUNNING, phase="collective" if waits else "other"
        )
        state.apply([facts], [_detail(dump, ops, groups, found)], now_s)
    for rank in set(range(state.world_size)) - set(dumps):
        state.not_known["", rank] = unread.get(rank, NO_DUMP)
    _note_not_known(state, dumps, groups, found)
    starts = [float(dump.table.entered_s[dump.table.entered_s > 0].min(initial=now_s)) for dump in dumps.values()]
    state.started_s = min(starts)
    return state, found, groups


def _detail(dump: RankDump, ops: tuple[Operation, ...], groups: Groups, found: Comparison) -> Detail:
    mine = tuple(
        Group(name, groups.members[name], groups.descriptions.get(name, ""), _entered(dump, name, groups, found))
        for name in groups.of(dump.rank)
    )
    return Detail(dump.rank, backend=dump.backend, groups=mine, world_size=groups.world_size, recorder=ops)


def _entered(dump: RankDump, group: str, groups: Groups, found: Comparison) -> int:
    """The last place the rank has entered: by its entries, in the default group by its counter too."""
    by_entries = found.entered.get((group, dump.rank), 0)
    return max(by_entries, dump.enqueued) if group == groups.default else by_entries


def _note_not_known(state: JobState, dumps: Mapping[int, RankDump], groups: Groups, found: Comparison) -> None:
    for rank, dump in dumps.items():
        for group in groups.of(rank):
            lost = dump.first_record > 0 or (not len(dump.table) and dump.enqueued > 0)
            if lost and _entered(dump, group, groups, found) <= 0:
                state.not_known[group, rank] = LOST_ENTRIES
    for denied in groups.denied:
        state.not_known[denied] = OTHER_GROUP
    for group in groups.unnamed:
        state.not_known[group, OTHERS] = UNNAMED
    for group, (place, finisher) in found.proven.items():
        for rank in groups.members.get(group, ()):
            behind = rank in dumps and _entered(dumps[rank], group, groups, found) < place
            if behind and not state.why_not_known(rank, group):
                keeps_state = dumps[finisher].backend != "gloo"
                state.not_known["", rank] = OLDER if keeps_state else GIVEN_UP
    _note_too_early(state, dumps, groups, found)


def _note_too_early(state: JobState, dumps: Mapping[int, RankDump], groups: Groups, found: Comparison) -> None:
    """Ranks that were dumped before the others entered what they wait in: they may have come since."""
    first_s: dict[tuple[str, int], float] = defaultdict(lambda: float("inf"))
    for ops in found.kept.values():
        for op in ops:
            if op.retired is False and not op.p2p and op.entered_s > 0:
                first_s[op.group, op.seq] = min(first_s[op.group, op.seq], op.entered_s)
    for (group, place), entered_s in first_s.items():
        for rank in groups.members.get(group, ()):
            if rank not in dumps or dumps[rank].taken_s >= entered_s - CLOCKS_APART_S:
                continue
            if _entered(dumps[rank], group, groups, found) < place:
                state.not_known.setdefault(("", rank), TOO_EARLY)
