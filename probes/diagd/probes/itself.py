"""Weights that a model is to get back and are its own: `state_dict()` hands out the live tensors, and no copies.

A dictionary that was kept over steps in which the weights moved on holds what they are now, and loading it changes
nothing. One that is taken and loaded between the same two steps is no such case: a distributed checkpoint is read
into it, or it is averaged over the ranks in place.

    checkpoint/itself  fact: the model's class, the last step before which the dictionary was taken, how many parameters
                       it is to give back, some of their names; and the line that loads it
"""

import sys
from typing import Any

from diagd.probes import sites
from diagd.probes.own_files import under_way
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

TAKEN = 16  # dictionaries of which it is remembered when they were taken
NAMES = 3

# By id of a tensor in them, which is a new one for each dictionary: an id that is used again is told anew with it. And
# by where that lies, for those who make new tensors of it (detach, a view): then the newest dictionary counts.
_taken: dict[tuple[str, int], int] = {}


def asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A module's state_dict is called; those of its children write into the same dictionary."""
    return True if len(args) < 2 and kwargs.get("destination") is None else None


def given(_: Any, state: Any) -> None:
    """It has returned this."""
    if STATE.live is None:
        return
    for key in _keys(state):
        _taken.pop(key, None)
        _taken[key] = under_way()
    while len(_taken) > 2 * TAKEN:
        del _taken[next(iter(_taken))]


def look(module: Any, state: Any, step: int) -> None:
    """A module has loaded this before the step; tells where all that it trains was its own."""
    taken = next((_taken[key] for key in _keys(state) if key in _taken), None)
    if taken is None or taken >= step:
        return
    base = sys.modules["torch.nn"].Module  # not what a class of the script's makes of this method
    trained = {name: one for name, one in base.named_parameters(module) if one.requires_grad and one.numel()}
    if trained and all(_is_same(state.get(name), one) for name, one in trained.items()):
        names = ",".join(list(trained)[:NAMES])
        line = sites.text_from(sys._getframe(1))
        SIGNALS.fact("checkpoint/itself", f"{type(module).__name__}|{taken}|{len(trained)}|{names}|{line}", step)


def forget() -> None:
    """A child of the process has taken none."""
    _taken.clear()


def _keys(state: Any) -> tuple[tuple[str, int], ...]:
    """What a dictionary's first tensor is known by."""
    values = state.values() if isinstance(state, dict) else ()
    first = next((one for one in values if hasattr(type(one), "untyped_storage")), None)
    return (("id", id(first)), ("at", first.data_ptr())) if first is not None else ()


def _is_same(loaded: Any, own: Any) -> bool:
    return hasattr(type(loaded), "untyped_storage") and loaded.data_ptr() == own.data_ptr() != 0
