"""Backward passes that are worth a look though no probe waits for their step: asked at each pass, so of very little."""

from collections.abc import Callable
from typing import Any

from diagd.probes.guard import Probe

Asks = Callable[[Any], bool]
_asking: list[tuple[Probe, Asks]] = []


def join(probe: Probe, asks: Asks) -> None:
    """Be asked of what each call of torch.autograd.backward is called on; who answers yes wakes its own turn."""
    _asking.append((probe, asks))


def leave(probe: Probe) -> None:
    """Be asked no more."""
    _asking[:] = [one for one in _asking if one[0] is not probe]


def of_pass(args: tuple[Any, ...]) -> bool:
    """Whether anyone answers yes, given the arguments of torch.autograd.backward by position."""
    return bool(args) and of_roots(args[0])


def of_roots(roots: Any) -> bool:
    """The same of what it is called on."""
    found = False
    for probe, asks in _asking:
        if probe.on:
            found = bool(probe.run(asks, roots)) or found
    return found
