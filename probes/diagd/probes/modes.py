"""In which mode the layers with running statistics are when a step's input goes in.

A rank that is left in evaluation mode goes on to train with the statistics of then, and no longer adds to them.

    mode/statistics  the share of them that is in training mode (at most 16 are looked at), where it is trained
"""

import sys
import weakref
from typing import Any

from diagd.probes.signals import SIGNALS

LOOKED_AT = 16
SURE = 3  # steps after a change: an evaluation, with gradients on, is over by then


class _Modes:
    """This process's."""

    def __init__(self) -> None:
        self.of: weakref.ref[Any] | None = None  # the model, or its wrapper
        self.layers: list[weakref.ref[Any]] = []
        self.share = 1.0
        self.unsure = 0  # steps that are to be looked at whatever the budget says
        self.step = -1


MODES = _Modes()


def look(model: Any, step: int) -> None:
    """A model is called.

    Args:
        step: Completed steps; each is looked at once.
    """
    if step == MODES.step:
        return
    MODES.step, MODES.unsure = step, max(MODES.unsure - 1, 0)
    if MODES.of is None or MODES.of() is not model:
        MODES.of = weakref.ref(model)
        MODES.layers = _layers(model)
    layers = [layer for one in MODES.layers if (layer := one()) is not None]
    if not layers:
        return
    share = sum(layer.training for layer in layers) / len(layers)
    if share != MODES.share:
        MODES.share, MODES.unsure = share, SURE
    SIGNALS.record("mode/statistics", share, step + 1)


def _layers(model: Any) -> list["weakref.ref[Any]"]:
    base = sys.modules["torch.nn"].Module  # not what a class of the script's makes of this method
    found = [one for one in base.modules(model) if one.__dict__.get("_buffers", {}).get("running_mean") is not None]
    return [weakref.ref(one) for one in found[:: max(len(found) // LOOKED_AT, 1)][:LOOKED_AT]]


def forget() -> None:
    """A new box begins anew."""
    MODES.__init__()  # type: ignore[misc]
