"""Optimizers that were made and never step, though backward passes leave gradients in what they own.

Looked at now and then, as long as no optimizer has stepped: a few of its parameters, whether they have a gradient and
hold what they held. A compiled step passes the hooks by, but changes them; whatever is updated by hand changes, too.

    optimizer/unstepped  fact: its class, and the backward passes that there were: "AdamW 96"
"""

import weakref
from typing import Any, NamedTuple

from diagd.probes import later, places
from diagd.probes.box.layout import Live
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

EVERY = 32  # backward passes
OPTIMIZERS, SOME, ELEMENTS = 8, 3, 32  # that are looked at; parameters of each; elements of each of them
_BACKWARDS, _OPTIMIZER_STEPS = int(Live.BACKWARDS), int(Live.OPTIMIZER_STEPS)

_made: list["weakref.ref[Any]"] = []


class _Held(NamedTuple):
    """What some parameters of an optimizer held, and which gradients."""

    kind: str
    versions: list[int]
    values: list[list[float]]
    gradients: list[tuple[int, int]]  # id, version

    def is_fed(self, before: "_Held") -> bool:
        """Whether it holds the same, and has had other gradients since."""
        return self[:-1] == before[:-1] and all(
            now != then for now, then in zip(self.gradients, before.gradients, strict=True)
        )


_before: list[_Held] = []


def made(optimizer: Any) -> None:
    """Another one."""
    _made.append(weakref.ref(optimizer))
    del _made[:-OPTIMIZERS]


def passed() -> None:
    """A backward pass is over, and no optimizer has stepped yet."""
    live = STATE.live
    if live[_OPTIMIZER_STEPS] or live[_BACKWARDS] % EVERY or not _made:
        return
    held = [one for ref in _made if (one := _look(ref())) is not None]
    if held and len(held) == len(_before) and all(map(_Held.is_fed, held, _before)):
        SIGNALS.fact("optimizer/unstepped", f"{held[-1].kind} {live[_BACKWARDS]}")
    _before[:] = held


def forget() -> None:
    """A child of the process begins anew."""
    _made.clear()
    _before.clear()


def _look(optimizer: Any) -> _Held | None:
    """None where it has stepped after all, or what it owns has no gradients."""
    if optimizer is None or optimizer.__dict__.get("state"):
        return None
    given = [p for _, p in places.places(optimizer) if p.grad is not None]
    some = given[:: max(len(given) // SOME, 1)][:SOME]
    if not some:
        return None
    gradients = [(id(p.grad), p.grad._version) for p in some]
    return _Held(type(optimizer).__name__, [p._version for p in some], list(map(_values, some)), gradients)


def _values(parameter: Any) -> list[float]:
    """Some of its elements, where they can be read without waiting."""
    tensor = later.plain(parameter)
    if tensor is None or tensor.device.type != "cpu" or not tensor.is_contiguous():
        return []
    return tensor.detach().reshape(-1)[:ELEMENTS].tolist()  # type: ignore[no-any-return]
