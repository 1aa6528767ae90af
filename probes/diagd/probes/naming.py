"""Names of parameters for what is told of a few of them, and which are small trained parts of a frozen model.

What the last look at the models has found is used; only where there was none, one is made here.
"""

import sys
import time
from typing import Any

from diagd.probes import inventory
from diagd.probes.box.layout import Live
from diagd.probes.named import NAMED
from diagd.probes.state import STATE

FROZEN_TIMES = 2  # a part is small where what is frozen beside it is so many times as large
MAX_LOOKS = 4  # at some ten milliseconds each
_looks = [0]


def forget() -> None:
    """A forked child begins anew."""
    _looks[0] = 0


def parameters(wanted: list[Any], optimizer: Any = None) -> list[str]:
    """The name of each of these parameters; its shape where no model that can be told apart holds it."""
    names = [NAMED.name(parameter) for parameter in wanted]
    if None in names and _looks[0] < MAX_LOOKS:
        _looks[0] += 1
        _look(optimizer)
        names = [NAMED.name(parameter) for parameter in wanted]
    shapes = [f"parameter {tuple(int(extent) for extent in parameter.shape)}" for parameter in wanted]
    return [name or shape for name, shape in zip(names, shapes, strict=True)]


def _look(optimizer: Any) -> None:
    began = time.monotonic_ns()
    NAMED.take(inventory.survey(optimizer))
    if STATE.live is not None:  # once or twice in a run: no matter of the budget
        STATE.live[int(Live.OVERHEAD_NS)] += time.monotonic_ns() - began


def adapters(among: list[Any]) -> list[str]:
    """Those of these parameters that are a small trained part of a model frozen in half precision, by name."""
    torch = sys.modules["torch"]
    half = torch.float16, torch.bfloat16
    ids = {id(parameter) for parameter in among}
    frozen: dict[int, int] = {}
    trained: dict[int, int] = {}
    small: list[tuple[str, int]] = []
    for one, tensor in NAMED.held():
        table = trained if tensor.requires_grad else frozen
        if tensor.requires_grad or tensor.dtype in half:
            table[one.model] = table.get(one.model, 0) + tensor.numel()
        if id(tensor) in ids:
            small.append((one.name, one.model))
    return [name for name, model in small if frozen.get(model, 0) > FROZEN_TIMES * trained.get(model, 0)]
