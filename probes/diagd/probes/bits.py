"""Whether the gradients of float32 parameters came through float16: by the numbers themselves.

A number that was in float16 has at most 11 significant bits, the last of them worth 2^-24 or more (IEEE 754): tiny ones
are whole multiples of that. What a communication hook sends in float16, or autocast computes in it, shows so in any few
elements. Those that came through bfloat16 have 8 bits, of which the last may be worth far less.

    gradients/half    1 where all elements that were looked at are such numbers and not just coarse ones, else 0
"""

import math
import sys
from typing import Any

from diagd.probes import later
from diagd.probes.signals import SIGNALS

TENSORS = 8
ELEMENTS = 32  # of each
LEAST = 16  # that are not zero
BITS, LAST = 11, -24
COARSE_BITS, SMALL, SOME = 8, 2.0**-17, 8  # bfloat16's; below this its last bit is worth less than LAST; so many


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
    there = [abs(value) for value in values if value and math.isfinite(value)]
    if len(there) >= LEAST:
        SIGNALS.record("gradients/half", float(are_half(there)), step)


def are_half(values: list[float]) -> bool:
    """Whether these numbers above 0 are float16's, and neither all bfloat16's nor all round."""
    bits, last = zip(*map(_bits, values), strict=True)
    small = sum(value < SMALL for value in values)
    return max(bits) <= BITS and min(last) >= LAST and (max(bits) > COARSE_BITS or small >= SOME)


def _bits(value: float) -> tuple[int, int]:
    """Significant bits of a float32, without zeros at the end, and the exponent of the last one's worth."""
    mantissa, exponent = math.frexp(value)
    whole = int(mantissa * (1 << 24))
    zeros = (whole & -whole).bit_length() - 1
    return 24 - zeros, exponent - 24 + zeros
