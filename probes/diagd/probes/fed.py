"""What a wrapped model was fed last, as far as it is still there: whether values that are not finite came in with it.

Nothing is kept alive: the script holds its batch until the backward pass, or it is not known. Parameters are none of
these, to which nothing may refer weakly.
"""

import weakref
from typing import Any

from diagd.probes import makers
from diagd.probes.state import STATE

MOST = 4  # tensors
ELEMENTS = 1 << 24  # of all of them


class _Fed:
    """This process's."""

    def __init__(self) -> None:
        self.tensors: list[weakref.ref[Any]] = []
        self.whole = False  # these are all of its floating-point tensors


FED = _Fed()


def take(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A wrapper's forward is called with these."""
    if STATE.backward_depth:
        return
    given = [*args, *kwargs.values()]
    found = [one for one in given if type(one) is torch.Tensor and one.is_floating_point()]
    FED.tensors = [weakref.ref(one) for one in found[:MOST]]
    FED.whole = len(found) <= MOST and not any(isinstance(one, list | tuple | dict) for one in given)


def was_finite(torch: Any) -> bool:
    """Whether all of it is known to be."""
    held = [tensor for ref in FED.tensors if (tensor := ref()) is not None]
    if not FED.whole or not held or len(held) < len(FED.tensors):
        return False
    if any(one.device.type != "cpu" for one in held) or sum(one.numel() for one in held) > ELEMENTS:
        return False
    return all(makers.finite(torch, one) for one in held)
