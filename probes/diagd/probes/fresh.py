"""Whether a frozen output layer still holds the random numbers that torch's own modules begin with.

torch.nn.Linear and the convolutions draw weights evenly from ±1/sqrt(fan_in): what was trained or loaded leaves those
bounds, or no longer fills them evenly.
"""

import math
import sys
from typing import Any

from diagd.probes import later
from diagd.probes.named import NAMED, Parameter
from diagd.probes.signals import SIGNALS

ENOUGH = 64  # elements: of fewer, their spread says little
LOOKED_AT = 65_536
# Of n even draws the largest is below 0.9 of the bound in 0.9^n of all cases, their standard deviation within 15 % of
# bound/sqrt(3) from about 60 draws on.
FILLED = 0.9
SPREAD = 0.15


def tell(owned: set[int], step: int) -> None:
    """Say which models' last weight is frozen, and whether it is random.

    Args:
        owned: Parameters, by id, that some optimizer has: those train by turns, as the halves of a GAN do.
        step: The training step under way.
    """
    for one, weight in _last_weights():
        if weight.requires_grad or one.owned or id(weight) in owned:
            continue
        SIGNALS.record("parameters/frozen_output", 1.0, step)
        SIGNALS.fact("parameters/frozen_output", one.name, step)
        if _is_random(weight):
            SIGNALS.record("parameters/random_output", 1.0, step)
            SIGNALS.fact("parameters/random_output", one.name, step)


def _last_weights() -> list[tuple[Parameter, Any]]:
    """Of each trained model, as modules are registered."""
    last = {one.model: (one, p) for one, p in NAMED.held() if one.trained and p.dim() > 1}
    return list(last.values())


def _is_random(weight: Any) -> bool:
    tensor = later.plain(weight)
    if tensor is None or tensor.device.type != "cpu":
        return False  # reading it from a device would wait for that
    return as_new(tensor, *spread(tensor).tolist())


def spread(tensor: Any) -> Any:
    """Its largest absolute value and its standard deviation, of a part of it: [2], where it lies."""
    some = tensor.detach().reshape(-1)[:LOOKED_AT].float()
    return sys.modules["torch"].stack([some.abs().max(), some.std(correction=0)])


def as_new(tensor: Any, largest: float, deviation: float) -> bool:
    """Whether a weight with this spread is filled as a new layer's is."""
    if tensor.numel() < ENOUGH or tensor.dim() < 2:
        return False
    bound = 1 / math.sqrt(math.prod(tensor.shape[1:]))
    even = bound / math.sqrt(3)
    return FILLED * bound < largest <= bound * 1.001 and abs(deviation - even) < SPREAD * even
