"""An optimizer's state that was cast as it was loaded: `load_state_dict` gives it the dtype of its parameter.

Of weights in half precision an optimizer of the script's own may keep moments and a copy in float32, which is what
makes small steps count. It is looked at again before the next step: a script may have put it right by then.

The fact `dtypes/state` is in the form of those of dtypes.py; names are those of the parameters with the state's behind.
"""

import sys
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from diagd.probes import dtypes, naming

MOST = 20  # names


class _Cast(NamedTuple):
    parameter: "weakref.ref[Any]"
    key: str
    old: Any  # dtype


class _Awaited:
    """Of the optimizer that was loaded last."""

    def __init__(self) -> None:
        self.optimizer: weakref.ref[Any] | None = None
        self.found: list[_Cast] = []


AWAITED = _Awaited()


def took(optimizer: Any, given: Any) -> None:
    """An optimizer has loaded a state."""
    found = list(_narrowed(optimizer, given)) if isinstance(given, dict) else []
    AWAITED.optimizer, AWAITED.found = (weakref.ref(optimizer), found) if found else (None, [])


def stepping(optimizer: Any, step: int) -> None:
    """It is about to step: what is still as it was cast is told, once."""
    awaited: Any = AWAITED.optimizer
    if awaited is None or awaited() is not optimizer:
        return
    left, AWAITED.optimizer, AWAITED.found = AWAITED.found, None, []
    still: list[tuple[Any, _Cast, Any]] = []
    for one in left:
        parameter = one.parameter()
        mine: Any = (optimizer.state.get(parameter) or {}).get(one.key) if parameter is not None else None
        if mine is not None and _is_narrower(mine, one.old):
            still.append((parameter, one, mine.dtype))
    if still:
        _, first, new = still[0]
        names = naming.parameters([parameter for parameter, _, _ in still[:MOST]], optimizer)
        told = [f"{name}.{one.key}" for name, (_, one, _) in zip(names, still, strict=False)]
        dtypes.tell("dtypes/state", first.old, new, told, step)


def _narrowed(optimizer: Any, given: dict[str, Any]) -> Iterator[_Cast]:
    """What has another dtype now, with fewer bits, than where it came from; both go by the order of the parameters."""
    numbers = [number for group in given.get("param_groups", ()) for number in group.get("params", ())]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states = given.get("state", {})
    for number, parameter in zip(numbers, parameters, strict=False):
        mine = optimizer.state.get(parameter) or {}  # ZeRO keeps None for the parameters of other ranks
        for key, value in (states.get(number) or {}).items():
            if isinstance(key, str) and key in mine and _is_narrower(mine[key], getattr(value, "dtype", None)):
                yield _Cast(weakref.ref(parameter), key, value.dtype)


def _is_narrower(mine: Any, old: Any) -> bool:
    torch = sys.modules["torch"]
    new = getattr(mine, "dtype", None)
    if not (isinstance(new, torch.dtype) and isinstance(old, torch.dtype)):
        return False
    return bool(new.is_floating_point and old.is_floating_point and new.itemsize < old.itemsize)
