"""Whether modules were given parameters, buffers or parts that they had not, since the models were looked through.

A layer that is added in the midst of a run, a mask, an adapter: none of them need bring a new optimizer with it.
"""

import sys
from collections.abc import Callable
from typing import Any

from diagd.probes.compiling import registration_eager
from diagd.probes.guard import Probe

_hooks: list[Any] = []


class _Registered:
    """This process's."""

    def __init__(self) -> None:
        self.anew = False
        self.wake: Callable[[], None] = _nobody

    def note(self) -> None:
        """There is something new."""
        if not self.anew:
            self.anew = True
            self.wake()


def _nobody() -> None:
    """Until somebody wants to know."""


REGISTERED = _Registered()


def begin(probe: Probe, module: Any, wake: Callable[[], None]) -> None:
    """torch.nn.modules.module is there.

    Args:
        wake: Called where something is new for the first time since `anew` was set to False.
    """
    REGISTERED.wake = wake
    for kind, table in (("parameter", "_parameters"), ("buffer", "_buffers"), ("module", "_modules")):
        register = getattr(module, f"register_module_{kind}_registration_hook", None)
        if register is not None:
            _hooks.append(register(registration_eager(sys.modules["torch"], probe, _noting(table))))


def end() -> None:
    """Take the hooks away."""
    while _hooks:
        _hooks.pop().remove()
    REGISTERED.__init__()  # type: ignore[misc]


def _noting(table: str) -> Callable[[Any, str, Any], None]:
    """A hook for what modules keep in `table`; it also sees each new value of what they have already."""
    registered = REGISTERED

    def registers(module: Any, name: str, value: Any) -> None:
        if not registered.anew and value is not None and name not in module.__dict__[table]:
            registered.note()

    return registers
