"""Whether an average of the weights that is kept in half precision follows them, or rounds every update away.

An average takes 1 - decay of the way to the weights at each step. Where that is below half the distance to the next
number it stays where it was made, however far away the weights are (IEEE 754, round to nearest). Looked at are copies
of a trained model that something writes into, a few elements of each, at some steps:

    average/written    how often the copy has been written into since the first look
    average/lost       share of the elements that still are what they were then, and are not what the weights are now
    average/dtype      fact: of the copy
    average/names      fact: some of its parameters
"""

import sys
import time
from typing import Any, NamedTuple

from diagd.probes import inventory, later, turns
from diagd.probes.budget import BUDGET
from diagd.probes.guard import Probe
from diagd.probes.named import NAMED
from diagd.probes.roundings import half_distance, pick
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

EVERY = 24  # steps
MANY = 128  # parameters
APART = 8.0  # in halves of the distance to the next number: the average has a way to go
_joined: list[Probe] = []


class _Seen(NamedTuple):
    """The copies at the first look."""

    numbers: tuple[int, ...]  # ids of the tensors
    versions: tuple[int, ...]
    values: Any


class _Averages:
    """This process's."""

    def __init__(self) -> None:
        self.first: _Seen | None = None
        self.told = False


AVERAGES = _Averages()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer is there."""
    STATE.listeners.append(_at_switch)
    _joined.append(probe)
    turns.join(probe, _following, after=_after)


def remove() -> None:
    """Take the hooks away."""
    while _joined:
        turns.leave(_joined.pop())


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        AVERAGES.__init__()  # type: ignore[misc]  # a forked child begins anew


def _following(step: int) -> int:
    return turns.sampled(step, EVERY) if NAMED.copies else turns.next_multiple(step, EVERY)


def _after(_: Any) -> None:
    torch = sys.modules["torch"]
    pairs = _pairs(torch)[:MANY]
    if not pairs or not STATE.recording or not later.possible(torch):
        return
    began = time.thread_time_ns()
    with later.unseen(torch):
        later.arrived()
        _look(torch, pairs, turns.counted())
    BUDGET.spent(time.thread_time_ns() - began)


def _pairs(torch: Any) -> list[tuple[str, Any, Any]]:
    """(name, copy, weights) of those in half precision, of the dtype and device of the first."""
    half = torch.float16, torch.bfloat16
    held = {one.name: one for one in NAMED.parameters}
    found = [
        (one.name, mine, its)
        for one in NAMED.copies
        if (mine := inventory.local(one.tensor())) is not None and mine.dtype in half and mine.is_contiguous()
        and (twin := held.get(one.name.replace(" (copy)", "", 1))) is not None
        and (its := inventory.local(twin.tensor())) is not None and its.shape == mine.shape
    ]  # fmt: skip
    return [one for one in found if (one[1].dtype, one[1].device, one[2].device) == _kind(found[0])]


def _kind(pair: tuple[str, Any, Any]) -> tuple[Any, Any, Any]:
    return pair[1].dtype, pair[1].device, pair[1].device


def _look(torch: Any, pairs: list[tuple[str, Any, Any]], step: int) -> None:
    copies = [mine for _, mine, _ in pairs]
    numbers, versions = tuple(map(id, copies)), tuple(mine._version for mine in copies)
    values = torch.cat([pick(mine) for mine in copies])
    first = AVERAGES.first
    if first is None or first.numbers != numbers:
        AVERAGES.first = _Seen(numbers, versions, values)
        return
    written = min(now - then for now, then in zip(versions, first.versions, strict=True))
    weights = torch.cat([pick(its) for *_, its in pairs])
    away = (weights.float() - values.float()).abs() > APART * half_distance(values)
    lost = ((values == first.values) & away).float().mean().reshape(1)
    names = [name for name, *_ in pairs]
    later.read(lost, lambda shares: _tell(step, written, shares[0], str(values.dtype), names))


def _tell(step: int, written: int, lost: float, dtype: str, names: list[str]) -> None:
    SIGNALS.record("average/written", float(written), step)
    SIGNALS.record("average/lost", lost, step)
    if not AVERAGES.told:
        AVERAGES.told = True
        SIGNALS.fact("average/dtype", dtype.removeprefix("torch."))
        SIGNALS.fact("average/names", ",".join(names[:8])[:900])
