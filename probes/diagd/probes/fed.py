"""What a wrapped model was fed last, as far as it is still there: whether values that are not finite came in with it.

Nothing is kept alive: the script holds its batch until the backward pass, or it is not known. Parameters are none of
these, to which nothing may refer weakly.
"""

from typing import Any
from weakref import ref

from diagd.probes import makers
from diagd.probes.state import STATE

MOST = 4  # tensors
ELEMENTS = 1 << 24  # of all of them


class _Fed:
    """This process's."""

    def __init__(self) -> None:
        self.given: list[Any] = []  # a weak reference to each tensor of floats, and of what else was given its type


FED = _Fed()


def take(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A wrapper's forward is called with these: in each step, so all else is left until somebody asks."""
    if STATE.backward_depth:
        return
    tensor, given = torch.Tensor, (*args, *kwargs.values()) if kwargs else args
    FED.given = [ref(one) if type(one) is tensor and one.is_floating_point() else type(one) for one in given]


def was_finite(torch: Any) -> bool:
    """Whether all of its floating-point tensors are known to be."""
    if any(one in (list, tuple, dict) for one in FED.given):
        return False  # which may hold more of them
    held: list[Any] = [one() for one in FED.given if type(one) is ref]
    if not 0 < len(held) <= MOST or any(one is None or one.device.type != "cpu" for one in held):
        return False
    return sum(one.numel() for one in held) <= ELEMENTS and all(makers.finite(torch, one) for one in held)
