"""What all tensors of this rank hold after one step, on request: what of each lies here, and what that adds up to.

Each rank tells of its own parts; whoever has those of all ranks has the whole tensors' digests, however they are split
(diagd/cuda_ext/additive.py). Nothing of this is done in a run of which nobody asks it.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from diagd.probes import digest
from diagd.probes.box import sums as layout
from diagd.probes.holdings import Holding, Unread, holdings
from diagd.probes.state import STATE

_FAILED = (ImportError, OSError, RuntimeError, TypeError, ValueError)  # one of torch's is that memory is out


class Snapshot:
    """One request for it, of the rank whose box lies at `path`; over once it is `written`."""

    def __init__(self, path: Path, serial: int, step: int) -> None:
        self.serial, self.step = serial, step
        self.begun = self.written = False
        self._path = path.with_suffix(layout.SUFFIX)
        self._unread: list[Unread] = []
        self._late: list[Holding] = []
        self._pending: list[tuple[list[list[Any]], Any]] = []
        self._error = ""

    def take(self, optimizers: Iterable[Any], later: bool) -> None:
        """Add up what there is after the step.

        Args:
            optimizers: Whose state counts.
            later: What no wrapper makes the same is read as the next step finds it: a script may do it by hand.
        """
        self.begun, self._error = True, "diagd could not look at its tensors"
        try:
            found = list(holdings(optimizers))
            self._unread = [one for one in found if isinstance(one, Unread)]
            held = [one for one in found if isinstance(one, Holding)]
            self._late = [one for one in held if later and one.plain]
            self._begin([one for one in held if not (later and one.plain)])
            self._error = ""
        except _FAILED as error:
            self._fail(error)
        self.settle()

    def take_late(self) -> None:
        """Before the next step."""
        late, self._late = self._late, []
        try:
            self._begin(late)
        except _FAILED as error:
            self._fail(error)

    def settle(self) -> None:
        """Write it down if all of it is there; no device is waited for."""
        if self.begun and not self.written and not self._late and all(totals.ready() for _, totals in self._pending):
            tensors = [
                [*told, f"{total:016x}", trained]
                for rows, totals in self._pending
                for (*told, trained), total in zip(rows, totals.result(), strict=True)
            ]
            unread = [(layout.KINDS[one.kind], one.name, one.why) for one in self._unread]
            self._pending, self.written = [], True
            try:
                layout.write(self._path, self.serial, self.step, tensors, unread, self._error)
            except OSError as error:  # who has asked finds nothing
                STATE.note(f"what tensors hold could not be told: {error.strerror}")

    def _begin(self, held: Sequence[Holding]) -> None:
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a CUDA graph was being captured")
        there = [(one, local) for one in held if (local := one.read()) is not None]
        if there:
            adding = digest.load_adding()
            totals = adding.begin([one.share.blocks(local, adding) for one, local in there])
            self._pending.append(([_row(one, local) for one, local in there], totals))

    def _fail(self, error: Exception) -> None:
        self._error, self._pending, self._late = f"{type(error).__name__}: {error}"[:500], [], []


def _row(one: Holding, local: Any) -> list[Any]:
    share, dtype = one.share, str(local.dtype).removeprefix("torch.")
    told = layout.KINDS[one.kind], share.name, dtype, local.element_size(), share.shape, share.region, share.numel
    return [*told, one.trained]
