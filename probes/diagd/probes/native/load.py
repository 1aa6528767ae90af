"""Finds the library that an installation with a C compiler has built, and tells it of the box and of the probes' state.

Without it, or with one that was made of other sources, everything goes the way of Python, which is only slower.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from diagd.probes import cost, odd
from diagd.probes.box import layout
from diagd.probes.box.layout import Live, Phase
from diagd.probes.fast import FAST
from diagd.probes.native.build import LIBRARY, sources_number
from diagd.probes.state import STATE

KEPT_OVER_COLLECTIVE = (
    Phase.BACKWARD,
    Phase.COLLECTIVE,
    Phase.CHECKPOINT,
)  # these say more than that they also communicate


@cache
def library() -> Any:
    """The library, told of the layout; None where there is none to use."""
    if not LIBRARY.is_file():
        return None
    try:
        native = __import__("diagd.probes.native._native", None, None, ["lay_out"])
    except ImportError:
        return None  # another machine's
    if sources_number() != native.SOURCES:
        return None
    native.lay_out(
        STATE, layout.BOX_SIZE, layout.LIVE_AT, layout.RINGS_AT, layout.RING_SIZE, layout.RING_HEADER,
        layout.RING_RECORDS, layout.RING_COUNT, Live.OPERATIONS, Live.PHASE, Live.PHASE_NS, Live.PHASE_TOTALS,
        Phase.COLLECTIVE, cost.MASK, sum(1 << phase for phase in KEPT_OVER_COLLECTIVE),
    )  # fmt: skip
    native.lay_out_steps(
        FAST, cost.Sampled().add, cost.Sampled().add, odd.of_pass, Live.STEP, Live.STEP_NS, Live.STEP_STARTED_NS,
        Live.OPTIMIZER_STEPS, Live.BACKWARDS, Live.BACKWARD_SITE, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER,
        Phase.OTHER,
    )  # fmt: skip
    return native


def chosen() -> Any:
    """The same, unless it is switched off."""
    return library() if STATE.settings.native else None


def faster(make: str, function: Callable[..., Any]) -> Any:
    """What the library makes of a function, or the function itself."""
    native = chosen()
    return getattr(native, make)(function) if native is not None else function
