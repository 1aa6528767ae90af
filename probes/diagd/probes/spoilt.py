"""Buffers that are no longer finite: no gradient reaches them, so that training goes on, and evaluation is spoilt.

One batch that is not finite does it to running statistics for good, also where its step was skipped. Looked at when
parameters are counted, as far as they are saved with the model; infinities alone may be meant, but in half precision.

The fact `buffers/spoilt` holds a line for each of the first that were finite before: its name, its dtype and nan or
inf, with tabs between them.
"""

import sys
from typing import Any

from diagd.probes import later
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS

FEW, MANY = 2, 65_536  # elements
BUFFERS = 64
SHOWN = 8
_HALVES = ("float16", "bfloat16")


class _Spoilt:
    """What is known of this process's."""

    def __init__(self) -> None:
        self.finite: set[str] = set()  # seen to be, and not told of since
        self.lines: list[str] = []


SPOILT = _Spoilt()


def look(step: int) -> None:
    """See which of them are finite."""
    torch = sys.modules["torch"]
    held = [(one.name, t) for one in NAMED.buffers if one.saved and _is_wanted(t := one.tensor())][:BUFFERS]
    for device in {tensor.device for _, tensor in held}:
        here = [(name, tensor) for name, tensor in held if tensor.device == device]
        about = [(name, str(tensor.dtype).removeprefix("torch.")) for name, tensor in here]
        with later.unseen(torch):
            counts = torch.stack([one(t).sum() for _, t in here for one in (torch.isnan, torch.isposinf)])
            later.read(counts, lambda values, about=about: _judge(about, values, step))  # type: ignore[misc]


def _is_wanted(tensor: Any) -> bool:
    return tensor is not None and tensor.is_floating_point() and FEW <= tensor.numel() <= MANY


def _judge(about: list[tuple[str, str]], values: list[float], step: int) -> None:
    told = len(SPOILT.lines)
    for (name, dtype), nans, infinities in zip(about, values[::2], values[1::2], strict=True):
        bad = "nan" if nans else "inf" if infinities and dtype in _HALVES else ""
        if bad and name in SPOILT.finite:
            SPOILT.lines.append(f"{name}\t{dtype}\t{bad}")
            SPOILT.finite.discard(name)
        elif not nans and not infinities:
            SPOILT.finite.add(name)
    if told < len(SPOILT.lines) and told < SHOWN:
        SIGNALS.fact("buffers/spoilt", "\n".join(SPOILT.lines[:SHOWN]), step)
