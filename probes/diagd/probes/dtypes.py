"""Tensors of another dtype than they should have: weights that change it, and buffers that half precision falsifies.

Facts: `dtypes/changed` (of buffers `dtypes/recast`), the old and the new dtype and the names, a tab between the three
and a comma between names; and `dtypes/buffer/<name>`, its dtype, what it holds (frequencies or positions) and its
length, likewise.
"""

import math
import sys
from itertools import pairwise
from typing import Any

from diagd.probes import later, naming
from diagd.probes.box.layout import Live
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

SHOWN = 20
FEW, MANY = 4, 65_536  # elements of a buffer that is looked at
BUFFERS = 16
FREQUENCY_NAMES = ("inv_freq", "inv_frequency", "inverse_freq")
_EXACT = {"torch.bfloat16": 256, "torch.float16": 2048}  # the integers up to here are numbers of their own
_UNEVEN = 0.04  # of the logarithm's mean difference between two neighbours, plus what rounding does to it
_ROUNDING = {"torch.bfloat16": 2**-8, "torch.float16": 2**-11}
# Frequencies fall fast and far, with 128 of them to 0.93 of the one before; what is discounted falls more slowly.
_LEAST_FALL = math.log(0.95)
_LAST = 0.02
_STEP = int(Live.STEP)
_cast: list[str] = []  # buffers
_SMALL = 6e-5  # below it float16 has fewer bits


def changed(optimizer: Any, parameters: list[tuple[Any, Any, Any]], step: int) -> None:
    """Parameters of an optimizer have another dtype than at the last look: each with its old and new one."""
    if not parameters:
        return
    _, old, new = parameters[0]
    names = naming.parameters([parameter for parameter, was, _ in parameters if was is old][:20], optimizer)
    tell("dtypes/changed", old, new, names, step)


def tell(fact: str, old: Any, new: Any, names: list[str], step: int) -> None:
    """Tell that these were cast from one dtype to another."""
    said = f"{str(old).removeprefix('torch.')}\t{str(new).removeprefix('torch.')}\t{','.join(names)}"
    SIGNALS.fact(fact, said[:900], step)


def recast(name: str, old: Any, new: Any) -> None:
    """A buffer has another dtype than when it was written down."""
    _cast.append(name)
    tell("dtypes/recast", old, new, _cast[-SHOWN:], max(STATE.live[_STEP], 0))


def buffers(found: list[tuple[str, Any]]) -> None:
    """Look at buffers by their name and content: those in half precision that should not be."""
    torch = sys.modules["torch"]
    if not later.possible(torch):
        return
    with later.unseen(torch):
        for name, tensor in found[:BUFFERS]:
            _look(torch, name, tensor)


def is_wanted(tensor: Any) -> bool:
    """Whether it may hold frequencies or positions in half precision."""
    return str(tensor.dtype) in _EXACT and FEW <= tensor.numel() <= MANY and max(tensor.shape) == tensor.numel()


def _look(torch: Any, name: str, tensor: Any) -> None:
    dtype = str(tensor.dtype)

    def judge(values: list[float]) -> None:
        what = _what(name, values, dtype)
        if what:
            SIGNALS.fact(f"dtypes/buffer/{name}", f"{dtype.removeprefix('torch.')}\t{what}\t{len(values)}")

    later.read(tensor.detach().reshape(-1).double(), judge)


def _what(name: str, values: list[float], dtype: str) -> str:
    if name.rpartition(".")[2].endswith(FREQUENCY_NAMES) or _fall_evenly(values, dtype):
        return "frequencies"
    exact = _EXACT[dtype]
    counts = len(values) > exact + 1 and values[:exact] == list(range(exact))
    return "positions" if counts and all(a <= b for a, b in pairwise(values)) else ""


def _fall_evenly(values: list[float], dtype: str) -> bool:
    """Whether they are the powers of one number below 1, from 1 on, as far as the dtype can tell."""
    if abs(values[0] - 1) > 0.01 or not all(a > b > 0 for a, b in pairwise(values)):
        return False
    kept = [math.log(value) for value in values if value > _SMALL]
    mean = kept[-1] / max(len(kept) - 1, 1)
    allowed = _UNEVEN * abs(mean) + _ROUNDING[dtype]
    if len(kept) < FEW or not mean < _LEAST_FALL or values[-1] > _LAST:
        return False
    return all(abs(value - mean * place) <= allowed for place, value in enumerate(kept))
