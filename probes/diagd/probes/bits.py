"""How many bits the gradients of float32 parameters have: fewer than 24 where they came through a narrower dtype.

A number that was in float16 has 11 significant bits, one from bfloat16 has 8 (IEEE 754, and its upper half): what a
communication hook sends in half precision, or autocast computes in it, shows so in any few elements. Powers of two
(a loss scale, a mean over 2, 4 or 8 ranks) change no bit.

    gradients/bits    the most of any of the elements that were looked at
"""

import math
import sys
from typing import Any

from diagd.probes import later
from diagd.probes.signals import SIGNALS

TENSORS = 8
ELEMENTS = 32  # of each
LEAST = 16  # that are not zero


def tell(parameters: list[Any], step: int) -> None:
    """Look at some gradients of these; at some steps only."""
    torch = sys.modules["torch"]
    every = max(1, len(parameters) // TENSORS)
    grads = [later.plain(p.grad) for p in parameters[::every][: 2 * TENSORS] if p.grad is not None]
    plain = [g for g in grads if g is not None and g.dtype is torch.float32 and g.is_contiguous()]
    alike = [g.detach().view(-1) for g in plain if g.device == plain[0].device]
    if not alike or not later.possible(torch):
        return
    with later.unseen(torch):
        picked = torch.cat([flat[:: max(1, len(flat) // ELEMENTS)][:ELEMENTS] for flat in alike])
        later.read(picked, lambda values: _tell(values, step))


def _tell(values: list[float], step: int) -> None:
    found = [bits(value) for value in values if value and math.isfinite(value)]
    if len(found) >= LEAST:
        SIGNALS.record("gradients/bits", float(max(found)), step)


def bits(value: float) -> int:
    """The significant bits of a float32 that is not zero, without zeros at the end: 1 to 24."""
    mantissa = int(abs(math.frexp(value)[0]) * (1 << 24))
    return 24 - (mantissa & -mantissa).bit_length() + 1
