"""Digests on demand: where ranks were seen to differ, of all tensors after one and the same step, and of parts of some.

A request stands in the rank's ledger; it is looked for where small things are looked at, which takes as long as
comparing two numbers. What it costs is counted as the ledger's other digests are; it happens a few times in a run.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from diagd.probes import digest, turns
from diagd.probes.box.ledger import LedgerWriter
from diagd.probes.box.requests import AT_START, LATE, Request, Target
from diagd.probes.signals import SIGNALS
from diagd.probes.snapshots import Snapshot

MOST_TOLD = 8  # tensors whose versions are told
RARE = 2  # tensors


class Row(Protocol):
    """A tensor of the ledger."""

    number: int
    name: str

    def tensor(self) -> Any:
        """What is held there now, or None."""


class Sweep:
    """The request that is being served, of this process's ledger."""

    def __init__(self, writer: LedgerWriter | None = None) -> None:
        self.writer = writer
        self.seen = 0  # serial
        self.request: Request | None = None
        self.begun = False
        self.with_gradients = False
        self.pending: list[tuple[int, list[int], digest.Pending]] = []  # row, edges
        self.snapshot: Snapshot | None = None

    def takes_all(self, step: int) -> bool:
        """Whether all that is compared is to be digested in and after this step."""
        return self.request is not None and self.request.everything and self.request.step == step

    def takes_gradients(self, step: int) -> bool:
        """Whether that goes for gradients too: on a device they live until they are digested, a step longer."""
        return self.with_gradients and self.takes_all(step)


SWEEP = Sweep()
take_snapshot: Callable[[Snapshot], None] | None = None  # the ledger's way to take one


def following(step: int) -> int:
    """The next step at which to look for a request, or to serve one; a later one takes the place of an earlier one."""
    if SWEEP.request is None:
        return turns.small(step)
    return min(turns.small(step), serving(step))


def begin_at_start(writer: LedgerWriter, step: int) -> Snapshot:
    """As if the step that is just over had been asked for; for a ledger that was just made."""
    SWEEP.__init__(writer)  # type: ignore[misc]
    SWEEP.request, SWEEP.begun = Request(AT_START, step, sums=True), True
    SWEEP.snapshot = Snapshot(writer.path, AT_START, step)
    return SWEEP.snapshot


def serving(step: int) -> int:
    """The next step at which to serve the request that was taken up."""
    return max(SWEEP.request.step, step + 1) if SWEEP.request is not None else turns.NEVER


def is_asked(writer: LedgerWriter | None) -> bool:
    """Whether there is a request that was not looked at yet; for any thread."""
    return writer is not None and writer.request(SWEEP.seen if SWEEP.writer is writer else 0) is not None


def after_step(
    writer: LedgerWriter | None, step: int, rows: Sequence[Row], missing: Iterable[int] = (), is_small: bool = True
) -> bool:
    """Serve what was asked for; whether all tensors are to be digested now.

    Args:
        step: That was completed just now.
        rows: What there is to digest.
        missing: Steps after which the ledger has taken digests that have not arrived yet.
        is_small: Whether gradients may be kept until their digests are there.
    """
    if writer is None:
        return False
    if SWEEP.writer is not writer:
        SWEEP.__init__(writer)  # type: ignore[misc]  # another process's, or anew
    if SWEEP.request is None or not SWEEP.begun:
        request = writer.request(SWEEP.seen)
        if request is not None:
            SWEEP.with_gradients = is_small
            _take_up(request, writer, step)
    if SWEEP.request is not None:
        _serve(SWEEP.request, writer, step, rows, missing)
    return SWEEP.takes_all(step)


def _take_up(request: Request, writer: LedgerWriter, step: int) -> None:
    SWEEP.seen = request.serial
    SWEEP.request = SWEEP.snapshot = None
    if request.step <= step:
        writer.answer(request.serial, LATE)
    else:
        SWEEP.request, SWEEP.begun = request, False
        SWEEP.snapshot = Snapshot(writer.path, request.serial, request.step) if request.sums else None


def _serve(request: Request, writer: LedgerWriter, step: int, rows: Sequence[Row], missing: Iterable[int]) -> None:
    if step < request.step:
        return
    if step == request.step:
        SWEEP.begun = True
        _begin(request.targets, rows)
        if SWEEP.snapshot is not None and take_snapshot is not None:
            take_snapshot(SWEEP.snapshot)
    _collect(writer, request.step)
    if (
        SWEEP.request is request
        and step > request.step
        and not SWEEP.pending
        and all(one > request.step for one in missing)
    ):
        settle(writer)


def settle(writer: LedgerWriter) -> None:
    """Answer the request, of which all else is done, once its snapshot is."""
    request, snapshot = SWEEP.request, SWEEP.snapshot
    if request is None:
        return
    if snapshot is not None and SWEEP.begun:
        snapshot.settle()
        if not snapshot.written:
            return
    SWEEP.request = SWEEP.snapshot = None
    writer.answer(request.serial, request.step if SWEEP.begun else LATE)  # the step may not have been recorded


def _begin(targets: Sequence[Target], rows: Sequence[Row]) -> None:
    torch = sys.modules["torch"]
    by_number = {row.number: row for row in rows}
    _tell_versions([by_number[target.row] for target in targets if target.row in by_number], rows)
    if not targets or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
        return
    for target in targets:
        row, edges = by_number.get(target.row), target.edges()
        tensor = row.tensor() if row is not None else None
        if tensor is not None and edges and tensor.dim() and 0 <= target.first < target.stop <= tensor.shape[0]:
            SWEEP.pending.append((target.row, edges, digest.Pending([tensor], edges)))


def _tell_versions(asked: Sequence[Row], rows: Sequence[Row]) -> None:
    """How often tensors were written in place: of replicas that make the same steps, as often.

    By name of those that were asked for, and of those that were written as often as hardly another one; under the empty
    name how often the others were.
    """
    found = {row.name: int(tensor._version) for row in rows if (tensor := row.tensor()) is not None}
    counts = Counter(found.values())
    usual = [version for version, times in counts.most_common(MOST_TOLD) if times > RARE]
    rare = [name for name, version in found.items() if counts[version] <= RARE]
    names = dict.fromkeys([*(row.name for row in asked[:MOST_TOLD]), *rare[:MOST_TOLD]])
    told: dict[str, Any] = {"": usual, **{name: found[name] for name in names if name in found}}
    if found:
        SIGNALS.fact("tensor/versions", json.dumps(told), SWEEP.request.step if SWEEP.request is not None else None)


def _collect(writer: LedgerWriter, step: int) -> None:
    """Write down what has arrived; the device is not waited for."""
    late = []
    for row, edges, pending in SWEEP.pending:
        if not pending.ready():
            late.append((row, edges, pending))
            continue
        for first, stop, bits in zip(edges, edges[1:], pending.bits(), strict=False):
            writer.part(row, step, first, stop, bits)
    SWEEP.pending = late
