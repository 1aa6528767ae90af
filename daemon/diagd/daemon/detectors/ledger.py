"""Who issued what on each group: the operations of all ranks, side by side in the groups' own order."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Operation

# Backends need the same number of elements on all ranks in these. Not in ALLTOALL, GATHER and SCATTER, where it may or
# must differ by rank.
SAME_SIZE = frozenset({
    "ALLREDUCE", "BROADCAST", "REDUCE", "ALLGATHER", "REDUCE_SCATTER",
    "ALLREDUCE_COALESCED", "ALLGATHER_COALESCED", "REDUCE_SCATTER_COALESCED",
})  # fmt: skip
UNNAMED = "COLLECTIVE"  # known only by a counter

# (name, dtype, elements, reduce op, root): None where not known
Signature = tuple[str, str | None, int | None, str | None, int | None]
FIELDS = ("operation", "dtype", "number of elements", "reduce op", "root")


@dataclass(slots=True)
class Ledger:
    """Operations by group, place and rank; `issued` is the last place each rank is known to have entered."""

    probe: dict[tuple[str, int], dict[int, Operation]] = field(default_factory=lambda: defaultdict(dict))
    recorder: dict[tuple[str, int], dict[int, Operation]] = field(default_factory=lambda: defaultdict(dict))
    issued: dict[tuple[str, int], int] = field(default_factory=dict)

    def at(self, group: str, seq: int, rank: int) -> Operation | None:
        """What the rank entered at that place; the probe's record before the flight recorder's."""
        key = (group, seq)
        return self.probe.get(key, {}).get(rank) or self.recorder.get(key, {}).get(rank)

    def entered(self, group: str, rank: int) -> int:
        """The last place that the rank entered in the group; 0 where it has entered none, as far as is known."""
        return self.issued.get((group, rank), 0)

    def signatures(self, group: str, seq: int, ranks: Iterable[int]) -> dict[int, Signature]:
        """The comparable signature of each rank at that place; ranks of which nothing is known are left out.

        Probe and flight recorder count elements differently, so all ranks are compared by the same source: the probe
        where it saw every rank there, else the recorder, else by name alone.
        """
        key, wanted = (group, seq), list(ranks)
        ops = {r: op for r in wanted if (op := self.at(group, seq, r)) is not None and op.name != UNNAMED}
        for source in (self.probe.get(key, {}), self.recorder.get(key, {})):
            if ops and all(r in source for r in ops):
                return {r: signature(source[r]) for r in ops}
        return {r: (op.name, None, None, None, None) for r, op in ops.items()}


def signature(op: Operation) -> Signature:
    """What must be the same on all ranks that meet in an operation."""
    size = op.numel if op.name in SAME_SIZE and op.numel >= 0 else None
    if size is None and op.name in SAME_SIZE and op.shapes:
        size = sum(_elements(shape) for shape in op.shapes)
    root = op.root if op.root >= 0 else None
    return op.name, op.dtype or None, size, op.reduce_op or None, root


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def ledger_of(state: JobState) -> Ledger:
    """Gather what all ranks are known to have issued."""
    book = Ledger()
    for rank, detail in state.details.items():
        for source, ops in ((book.probe, (*detail.history, *detail.operations)), (book.recorder, detail.recorder)):
            for op in ops:
                if op.seq > 0 and not op.p2p:
                    source[op.group, op.seq][rank] = op
                    key = (op.group, rank)
                    book.issued[key] = max(book.issued.get(key, 0), op.seq)
        for group in detail.groups:
            key = (group.name, rank)
            book.issued[key] = max(book.issued.get(key, 0), group.enqueued)
    return book


def differing(signatures: dict[int, Signature]) -> tuple[str, ...]:
    """The fields in which the ranks differ, where known on both sides; the operation's name outranks the rest."""
    columns = list(zip(*signatures.values(), strict=True))
    found = tuple(
        name for name, values in zip(FIELDS, columns, strict=True) if len({v for v in values if v is not None}) > 1
    )
    return found[:1] if "operation" in found else found


def classes(signatures: dict[int, Signature]) -> list[list[int]]:
    """Ranks by equal signature, the largest class first, ties by rank.

    Fields that some rank does not know are left out of the comparison.
    """
    known = [all(s[i] is not None for s in signatures.values()) for i in range(len(FIELDS))]
    by_key: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank in sorted(signatures):
        by_key[tuple(v for v, k in zip(signatures[rank], known, strict=True) if k)].append(rank)
    return sorted(by_key.values(), key=lambda ranks: (-len(ranks), ranks))


def minority(groups: list[list[int]]) -> tuple[tuple[int, ...], bool]:
    """The ranks outside the largest class, and whether it is a tie, in which all are named."""
    if len(groups) < 2:
        return (), False
    if len(groups[0]) == len(groups[1]):
        return tuple(sorted(r for ranks in groups for r in ranks)), True
    return tuple(sorted(r for ranks in groups[1:] for r in ranks)), False
