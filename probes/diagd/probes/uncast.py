"""Modules that ran under autocast at look after look, and now run where something inside the region switches it off.

So does torch's custom_fwd(cast_inputs=...), which wraps a function of autograd's: what it calls runs in full precision,
and with gradients off, so that neither the region around the step nor the share of the calls under it shows that.

autocast/lost     of the modules that ran under it at three looks or more, the share that ran without it alone; fact:
                  where the region that switches it off is entered, FILE<tab>LINE<tab>FUNCTION
autocast/lost/of  fact: how many, a tab, and the first of their names with commas between
"""

import weakref
from collections.abc import Callable
from typing import Any

from diagd.probes import sites
from diagd.probes.signals import SIGNALS

OFTEN = 3  # looks, before a module counts as one that runs under it
AGAIN = 3  # steps that are looked at right after: every 16th one may be of a kind of its own
NAMES = 4
_MANY = 4096  # modules


class _Parts:
    """What this look has shown, and those before it."""

    def __init__(self) -> None:
        self.times: dict[int, tuple[weakref.ref[Any], int]] = {}  # by id of a module
        self.looking = False
        self.place = ""  # where the innermost region that switches it off was entered
        self.under: dict[int, Any] = {}
        self.off: dict[int, tuple[Any, str]] = {}  # module and place
        self.again = 0  # steps that are still to be looked at out of turn


PARTS = _Parts()


def begin() -> None:
    """A look begins."""
    PARTS.looking, PARTS.place = True, ""


def end() -> None:
    """It is over, or was broken off."""
    PARTS.looking = False
    PARTS.under.clear()
    PARTS.off.clear()


def switched_off(frame: Any) -> None:
    """A region that switches it off is entered inside another one, from there."""
    if PARTS.looking:
        PARTS.place = sites.text_from(frame)


def note(module: Any, under: bool, inside: bool) -> None:
    """A module with float32 weights that are trained was called in the forward pass.

    Args:
        under: It ran under autocast.
        inside: A region is open around it, though it may be switched off here.
    """
    if under:
        PARTS.under[id(module)] = module
    else:
        PARTS.off[id(module)] = module, PARTS.place if inside else ""


def tell(name_of: Callable[[Any], str]) -> None:
    """The forward pass is over."""
    lost = {n: one for n, one in PARTS.off.items() if n not in PARTS.under and _times(n, one[0]) >= OFTEN}
    known = len(lost) + sum(_times(number, module) >= OFTEN for number, module in PARTS.under.items())
    if known:
        SIGNALS.record("autocast/lost", len(lost) / known)
    if lost:
        PARTS.again = PARTS.again - 1 if PARTS.again > 0 else AGAIN
        first = list(lost.values())[:NAMES]
        SIGNALS.fact("autocast/lost/of", f"{len(lost)}\t{','.join(name_of(module) for module, _ in first)}")
        if place := first[0][1]:
            SIGNALS.fact("autocast/lost", place)
    else:
        PARTS.again = 0
    for number, module in PARTS.under.items():
        if len(PARTS.times) < _MANY or number in PARTS.times:
            PARTS.times[number] = weakref.ref(module), _times(number, module) + 1


def _times(number: int, module: Any) -> int:
    ref, times = PARTS.times.get(number, (None, 0))
    return times if ref is not None and ref() is module else 0
