"""Backward passes that are worth a look though no probe waits for their step: asked at each pass, so of very little.

One probe may ask, and answers in one function: between two calls of ours all caches go to the training, and each
function that is called costs many times what it costs in a loop.
"""

from collections.abc import Callable
from typing import Any

from diagd.probes.guard import Probe

Asks = Callable[[Any], bool]


class _Asking:
    probe: Probe | None = None
    asks: Asks | None = None


def join(probe: Probe, asks: Asks) -> None:
    """Be asked of what each call of torch.autograd.backward is called on; who answers yes wakes its own turn."""
    _Asking.probe, _Asking.asks = probe, asks


def leave(probe: Probe) -> None:
    """Be asked no more."""
    if _Asking.probe is probe:
        _Asking.probe = _Asking.asks = None


def of_pass(args: tuple[Any, ...]) -> bool:
    """Whether the answer is yes, given the arguments of torch.autograd.backward by position."""
    probe = _Asking.probe
    if probe is None or not probe.on or not args:
        return False
    try:
        return _Asking.asks(args[0])  # type: ignore[misc]
    except Exception as error:  # noqa: BLE001 - Probe.run, without the call of it
        probe.failed(error)
        return False
