"""What ranks give each other of what they compute, as the operations of the first steps tell.

data/exchanges fact, without a wrapper: which operations the first steps exchange parts of what they compute by
data/averages  fact: groups of some ranks over which the first steps add up more than figures, as data/replicas
data/moved     fact, without a wrapper: all operations by which the first steps move more than figures
data/within    fact: groups in which the script's own backward passes exchange them, as where ranks share a sample
"""

import itertools
import sys
from typing import Any

from diagd.probes import groups
from diagd.probes.box.layout import Flag, Op
from diagd.probes.box.reader import BoxReader
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

AT_STEP = 8  # it takes most of a millisecond, once
# Averaging gradients needs none of these. Ranks that exchange what they compute may share each sample.
_EXCHANGES = {int(op): op.name for op in (Op.ALLGATHER, Op.ALLTOALL, Op.REDUCE_SCATTER, Op.SEND, Op.RECV)}
_WITHIN = frozenset({Op.ALLREDUCE, Op.ALLGATHER, Op.REDUCE_SCATTER})  # each rank has a part of all that is summed
_NO_DATA = frozenset({
    Op.BARRIER, Op.MONITORED_BARRIER, Op.NEW_GROUP, Op.INIT, Op.DESTROY, Op.STORE_GET, Op.STORE_WAIT, Op.STORE_SET,
    Op.STORE_JOIN,
})  # fmt: skip
_FIGURES = 64  # elements: so few are what ranks tell each other of their losses and counts


def tell(wrapped: bool) -> None:
    """From this rank's own box: what it has issued lately."""
    reader = BoxReader(STATE.box.path)  # type: ignore[union-attr]  # there is one, as there are numbers
    try:
        records = reader.history()
    finally:
        reader.close()
    large = [one for one in records if not 0 <= one.numel <= _FIGURES]
    if not wrapped:
        found = {_EXCHANGES[one.op] for one in large if one.op in _EXCHANGES}
        SIGNALS.fact("data/exchanges", ",".join(sorted(found)) or "none")
        SIGNALS.fact(
            "data/moved", ",".join(sorted({Op(one.op).name for one in large if one.op not in _NO_DATA})) or "none"
        )
    _tell_averages(large)
    _tell_within(large)


def _tell_averages(large: list[Any]) -> None:
    """The groups of some ranks over which these operations add up, and are used for nothing else."""
    others = {one.group for one in large if one.op in _EXCHANGES}
    added = {one.group for one in large if one.op == Op.ALLREDUCE} - others
    world = sys.modules["torch.distributed"].get_world_size()
    _tell("data/averages", added, world - 1)


def _tell_within(large: list[Any]) -> None:
    """The groups on which Python communicates while a backward pass runs: what a wrapper does is issued from C++."""
    world = sys.modules["torch.distributed"].get_world_size()
    _tell("data/within", {one.group for one in large if one.op in _WITHIN and one.flags & Flag.IN_BACKWARD}, world)


def _tell(name: str, numbers: set[int], most: int) -> None:
    """Those of the groups that have as many ranks at most."""
    found = [group.ranks for group in groups.TABLE.values() if group.number in numbers and 1 < len(group.ranks) <= most]
    if found:
        SIGNALS.fact(name, " ".join(written(sorted(ranks)) for ranks in sorted(found)))


def written(ranks: list[int]) -> str:
    """In few bytes, however many there are: they nearly always lie at equal distances."""
    steps = {after - before for before, after in itertools.pairwise(ranks)}
    return f"{ranks[0]}:{ranks[-1]}:{steps.pop()}" if len(steps) == 1 else ",".join(map(str, ranks))
