"""All ranks' operations side by side: where they differ, and which of them a verdict can depend on.

What all ranks of a group have entered alike and finished changes few verdicts, and is left out: of a thousand ranks'
rings a few operations each remain.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.analyze.dumpfile import RankDump
from diagd.daemon.analyze.groups import Groups
from diagd.daemon.detectors.astray import VOTERS
from diagd.daemon.state.model import Operation

# Such an operation ends nowhere before all have entered it. (A broadcast's root, say, can be done before.)
_NEEDS_ALL = frozenset({
    "ALLREDUCE", "ALLGATHER", "ALLTOALL", "BARRIER", "REDUCE_SCATTER", "ALLREDUCE_COALESCED", "ALLGATHER_COALESCED",
    "REDUCE_SCATTER_COALESCED",
})  # fmt: skip
MOST_KEPT = 200_000  # operations at places in dispute, of all ranks together
LEAST_PLACES = 32  # in dispute, however many ranks there are
_PLACES = 1 << 40  # place numbers stay below


@dataclass(slots=True)
class Comparison:
    """What came of it."""

    kept: dict[int, tuple[Operation, ...]] = field(default_factory=dict)  # of each rank
    entered: dict[tuple[str, int], int] = field(
        default_factory=dict
    )  # the last place that a rank's dump has of a group
    proven: dict[str, tuple[int, int]] = field(default_factory=dict)  # a place that all have entered, who finished it
    compared: int = 0


@dataclass(slots=True)
class _Rows:
    """The collectives of all ranks in one table; `key` joins group and place."""

    names: list[str]
    key: NDArray[np.int64]
    digest: NDArray[np.int64]
    rank: NDArray[np.int64]
    row: NDArray[np.int64]
    proves: NDArray[np.bool_]


def compare(dumps: Mapping[int, RankDump], groups: Groups) -> Comparison:
    """Compare all ranks' operations place by place."""
    rows = _rows(dumps, groups)
    found = Comparison(compared=len(rows.key) + sum(int((d.table.seq == 0).sum()) for d in dumps.values()))
    _note_positions(rows, found)
    waited = _waited_in(rows, dumps)
    disputed = _disputed(rows, len(dumps))
    # Who left the others' way is told by the order of all that a rank issued, over the groups in which ranks wait, or
    # in the one in which they wait in different operations.
    telling = len(set((waited // _PLACES).tolist())) > 1 or bool(np.isin(waited, disputed).any())
    all_tell = len(dumps) <= VOTERS and telling
    chosen = np.isin(rows.key, np.union1d(disputed, waited)) | all_tell
    by_rank: dict[int, set[int]] = {rank: set(dump.table.tail) for rank, dump in dumps.items()}
    for rank, row in zip(rows.rank[chosen].tolist(), rows.row[chosen].tolist(), strict=True):
        by_rank[rank].add(row)
    found.kept = {rank: dumps[rank].table.operations(sorted(kept)) for rank, kept in by_rank.items()}
    return found


def _rows(dumps: Mapping[int, RankDump], groups: Groups) -> _Rows:
    names: dict[str, int] = {}
    parts: list[tuple[NDArray[np.int64], ...]] = []
    for rank, dump in dumps.items():
        table, own = dump.table, groups.names[rank]
        table.forms = [_renamed(form, own.get(form.group, form.group)) for form in table.forms]
        if not table.forms:
            continue
        codes = np.array([names.setdefault(form.group, len(names)) for form in table.forms], np.int64)
        digests = np.array(table.digests, np.int64)
        proves = np.array([form.name in _NEEDS_ALL and form.numel != 0 for form in table.forms], np.int64)
        at = np.flatnonzero((digests[table.form] > 0) & (table.seq > 0) & (table.seq < _PLACES))
        form = table.form[at]
        parts.append((
            codes[form] * _PLACES + table.seq[at], digests[form], np.full(len(at), rank, np.int64), at,
            proves[form] * table.retired[at],
        ))  # fmt: skip
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 5
    order = np.argsort(columns[0], kind="stable")
    key, digest, rank_of, row, proves = (column[order] for column in columns)
    return _Rows(list(names), key, digest, rank_of, row, proves.astype(np.bool_))


def _renamed(form: Operation, group: str) -> Operation:
    return form if form.group == group else replace(form, group=group)


def _note_positions(rows: _Rows, found: Comparison) -> None:
    """The last place that each rank has entered in each group, and the last that all must have."""
    group, seq = np.divmod(rows.key, _PLACES)
    ranks = int(rows.rank.max()) + 1 if len(rows.rank) else 0
    last = np.zeros(len(rows.names) * ranks, np.int64)
    np.maximum.at(last, group * ranks + rows.rank, seq)
    for place in np.flatnonzero(last).tolist():
        found.entered[rows.names[place // ranks], place % ranks] = int(last[place])
    for code, name in enumerate(rows.names):
        at = np.flatnonzero(rows.proves & (group == code))
        if len(at):  # rows are sorted by place
            found.proven[name] = int(seq[at[-1]]), int(rows.rank[at[-1]])


def _disputed(rows: _Rows, ranks: int) -> NDArray[np.int64]:
    """The places at which not all ranks called alike: the first of them, and the last."""
    if not len(rows.key):
        return rows.key
    starts = np.flatnonzero(np.r_[True, rows.key[1:] != rows.key[:-1]])
    differ = np.minimum.reduceat(rows.digest, starts) != np.maximum.reduceat(rows.digest, starts)
    places: NDArray[np.int64] = rows.key[starts[differ]]
    most = max(LEAST_PLACES, MOST_KEPT // max(ranks, 1))
    return places if len(places) <= most else np.r_[places[: most // 2], places[-(most // 2) :]]


def _waited_in(rows: _Rows, dumps: Mapping[int, RankDump]) -> NDArray[np.int64]:
    """The places in which some rank stands: there all ranks' operations are needed, the finished ones too."""
    codes = {name: code for code, name in enumerate(rows.names)}
    found: set[int] = set()
    for dump in dumps.values():
        seen: set[str] = set()
        for row in dump.table.tail:
            form = dump.table.forms[dump.table.form[row]]
            if not dump.table.retired[row] and not form.p2p and form.group not in seen:
                seen.add(form.group)
                found.add(codes.get(form.group, 0) * _PLACES + int(dump.table.seq[row]))
    return np.array(sorted(found), np.int64)
