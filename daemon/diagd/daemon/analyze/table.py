"""One rank's operations as columns: small enough to travel between processes and to be compared by the million."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.detectors.backend import lane_of
from diagd.daemon.detectors.ledger import signature
from diagd.daemon.state.model import Operation

MOST_UNFINISHED = 64  # of one order: a host can be thousands of operations ahead of its device, and the first counts


@dataclass(slots=True)
class Table:
    """Operations, oldest first; `forms` holds each kind of call once, without its place and times."""

    forms: list[Operation]
    digests: list[int]  # of each form: equal where the operations may meet; 0 for send and recv
    form: NDArray[np.int32]
    seq: NDArray[np.int64]
    entered_s: NDArray[np.float64]
    returned_s: NDArray[np.float64]  # 0 where not known
    retired: NDArray[np.bool_]
    tail: list[int]  # rows: of each order that operations end in, the last finished one and those unfinished after it

    def __len__(self) -> int:
        return len(self.seq)

    def operations(self, rows: Iterable[int]) -> tuple[Operation, ...]:
        """The operations in these rows."""
        return tuple(
            replace(
                self.forms[self.form[row]], seq=int(self.seq[row]), entered_s=float(self.entered_s[row]),
                returned_s=float(self.returned_s[row]) or None, retired=bool(self.retired[row]),
            )
            for row in rows
        )  # fmt: skip


def table_of(operations: Sequence[Operation]) -> Table:
    """The columns of these operations."""
    numbers: dict[tuple[Any, ...], int] = {}
    forms: list[Operation] = []
    column = np.empty(len(operations), np.int32)
    for row, op in enumerate(operations):
        key = (op.name, op.group, op.shapes, op.numel, op.dtype, op.peer, op.site, op.timeout_s)
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(forms)
            forms.append(replace(op, seq=0, entered_s=0.0, returned_s=None))
        column[row] = number
    return Table(
        forms=forms,
        digests=[_digest(op) for op in forms],
        form=column,
        seq=np.array([op.seq for op in operations], np.int64),
        entered_s=np.array([op.entered_s for op in operations], np.float64),
        returned_s=np.array([op.returned_s or 0.0 for op in operations], np.float64),
        retired=np.array([op.retired is not False for op in operations], np.bool_),
        tail=_tail(operations),
    )


def _tail(operations: Sequence[Operation]) -> list[int]:
    """The rows that say where the rank stands, as the detectors' `unfinished_tail` takes them."""
    lanes: dict[tuple[object, ...], list[int]] = {}
    for row, op in enumerate(operations):
        rows = lanes.setdefault(lane_of(op), [])
        if op.retired is not False:
            rows[:] = [row]
        elif len(rows) <= MOST_UNFINISHED:
            rows.append(row)
    return sorted(row for rows in lanes.values() for row in rows)


def _digest(op: Operation) -> int:
    """Not Python's hash, which differs from process to process."""
    return 0 if op.p2p else zlib.crc32(repr(signature(op)).encode()) + 1
