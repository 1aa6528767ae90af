"""Counters that were cast with their model and stand still: in bfloat16 256 + 1 is 256, in float16 2048 + 1 is 2048.

A model's .to(bfloat16) or .half() takes buffers with it in which a step, the updates of an average, or labels and codes
are counted; what goes by them (a temperature, a warm-up, a bias correction, a prior) stands still from there on. Of
several counts in one buffer the largest is the first to stand.

The fact `buffers/stuck` holds a line for each that has counted up to there and stays: its name and its dtype, with a
tab between them.
"""

import sys
from typing import Any

from diagd.probes import later
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS

EXACT = {"bfloat16": 256.0, "float16": 2048.0}  # the first integer whose successor the dtype does not have
LOOKS = 2  # in a row at which it stands there
MOST = 32
LARGEST = 4096  # counts in one buffer


class _Count:
    """One counter, as it was seen."""

    __slots__ = ("rose", "stood", "value")

    def __init__(self, value: float) -> None:
        self.value = value
        self.rose = 0  # times that it was higher, and whole, than at the look before
        self.stood = 0  # looks in a row at the end of what it can count to

    def see(self, value: float, end: float) -> bool:
        """Whether it has been seen often enough to stand there."""
        self.rose = self.rose + 1 if value > self.value and value.is_integer() else self.rose if value >= end else 0
        self.stood = self.stood + 1 if value == self.value == end else 0
        self.value = value
        return self.rose >= LOOKS and self.stood == LOOKS


class _Counters:
    """This process's."""

    def __init__(self) -> None:
        self.seen: dict[str, _Count] = {}
        self.lines: list[str] = []


COUNTERS = _Counters()


def look(step: int) -> None:
    """See what they have come to."""
    torch = sys.modules["torch"]
    held = [(one.name, t) for one in NAMED.buffers if _is_wanted(t := one.tensor())][:MOST]
    for device in {tensor.device for _, tensor in held}:
        here = [(name, tensor) for name, tensor in held if tensor.device == device]
        about = [(name, _dtype(tensor)) for name, tensor in here]
        with later.unseen(torch):
            values = torch.stack([_largest(torch, tensor.float()) for _, tensor in here])
            later.read(values, lambda numbers, about=about: _judge(about, numbers, step))  # type: ignore[misc]


def _is_wanted(tensor: Any) -> bool:
    return tensor is not None and 0 < tensor.numel() <= LARGEST and _dtype(tensor) in EXACT


def _largest(torch: Any, values: Any) -> Any:
    """The largest of whole numbers; NaN where some are none."""
    most = values.amax()
    return torch.where((values == values.round()).all(), most, torch.full_like(most, float("nan")))


def _judge(about: list[tuple[str, str]], values: list[float], step: int) -> None:
    told = len(COUNTERS.lines)
    for (name, dtype), value in zip(about, values, strict=True):
        known = COUNTERS.seen.get(name)
        if known is None:
            COUNTERS.seen[name] = _Count(value)
        elif known.see(value, EXACT[dtype]):
            COUNTERS.lines.append(f"{name}\t{dtype}")
    if told < len(COUNTERS.lines):
        SIGNALS.fact("buffers/stuck", "\n".join(COUNTERS.lines[:MOST]), step)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
