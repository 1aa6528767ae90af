"""Buffers of which each step writes a few rows, and the next one others: a table with a row for each sample, as running
means of predictions or a memory of features, and no statistic of all that a rank sees.

Looked at in three steps in a row, at some places of the run: which rows differ after one step from what they were
before, by one number for each row. The fact `buffers/rows` holds a line for each such table: its name, how many rows
the one step has written, how many the other, how many both, and all, with tabs between them.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from diagd.probes import later, turns
from diagd.probes.budget import BUDGET
from diagd.probes.guard import Probe
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

FIRST = (6, 38, 134)  # steps after which a look begins
LOOKS = 3
ROWS, ELEMENTS, TABLES = 256, 1 << 22, 8
_joined: list[Probe] = []


class _Look(NamedTuple):
    """After one step, one number for each row, by the table's name."""

    step: int
    rows: dict[str, Any]


class _OwnRows:
    """This process's."""

    def __init__(self) -> None:
        self.looks: list[_Look] = []
        self.lines: dict[str, str] = {}


OWN_ROWS = _OwnRows()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer is there."""
    STATE.listeners.append(_at_switch)
    _joined.append(probe)
    turns.join(probe, following, after=_after)


def remove() -> None:
    """Take the hooks away."""
    while _joined:
        turns.leave(_joined.pop())
    OWN_ROWS.looks.clear()


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        OWN_ROWS.__init__()  # type: ignore[misc]  # a forked child begins anew


def following(step: int) -> int:
    """The next step to look at; those of one look follow each other whatever they cost."""
    return next((at for first in FIRST for at in range(first, first + LOOKS) if at > step), turns.NEVER)


def _after(_: Any) -> None:
    distributed = sys.modules.get("torch.distributed")
    alone = distributed is None or not distributed.is_initialized() or distributed.get_world_size() < 2
    torch = sys.modules["torch"]
    if alone or not STATE.recording or not later.possible(torch):
        return
    began = time.thread_time_ns()
    with later.unseen(torch):
        look(torch, turns.counted())
    BUDGET.spent(time.thread_time_ns() - began)


def look(torch: Any, step: int) -> None:
    """After a step: of several optimizers' the first of them counts."""
    known = OWN_ROWS.looks
    if not any(first <= step < first + LOOKS for first in FIRST) or (known and known[-1].step == step):
        return
    if known and known[-1].step != step - 1:
        known.clear()
    tables = [(one.name, t) for one in NAMED.buffers if _is_table(t := one.tensor())][:TABLES]
    known.append(_Look(step, {name: _numbers(torch, tensor) for name, tensor in tables}))
    if len(known) == LOOKS:
        _compare(torch, step, *(one.rows for one in known))
        known.clear()


def _is_table(tensor: Any) -> bool:
    return tensor is not None and tensor.dim() > 0 and tensor.shape[0] >= ROWS and tensor.numel() <= ELEMENTS


def _numbers(torch: Any, tensor: Any) -> Any:
    """One number for each row, which another content changes: weighted, as rows of shares add up to the same."""
    rows = tensor.detach().reshape(len(tensor), -1)
    rows = rows if rows.dtype in (torch.float32, torch.float64) else rows.double()
    weights = torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype, device=rows.device).sqrt()
    return rows @ weights


def _compare(torch: Any, step: int, first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]) -> None:
    names = [n for n, one in first.items() if n in second and n in third and one.shape == third[n].shape]
    for name in names:
        one, other = first[name] != second[name], second[name] != third[name]
        counts = torch.stack([one.sum(), other.sum(), (one & other).sum()])
        later.read(counts, _telling(name, len(one), step))


def _telling(name: str, size: int, step: int) -> Callable[[list[float]], None]:
    return lambda counts: _told(name, counts, size, step)


def _told(name: str, counts: list[float], size: int, step: int) -> None:
    if counts[0] and counts[1]:
        OWN_ROWS.lines[name] = "\t".join((name, *(f"{count:.0f}" for count in counts), str(size)))
        SIGNALS.fact("buffers/rows", "\n".join(OWN_ROWS.lines.values()), step)
