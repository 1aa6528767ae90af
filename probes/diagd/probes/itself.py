"""Weights that a model is to get back and are its own: `state_dict()` hands out the live tensors, and no copies.

A dictionary that was kept over steps in which the weights moved on, or while others were loaded (those of an average,
to evaluate with), holds what they are now, and loading it changes nothing. One that is taken and loaded between the
same two steps is else no such case: a distributed checkpoint is read into it, or it is averaged in place.

    checkpoint/itself  fact: the model's class, the last step before which the dictionary was taken (0: in this one, and
                       other weights were loaded since), how many parameters it is to give back, some of their names;
                       and the line that loads it
"""

import sys
import weakref
from collections.abc import Callable
from typing import Any

from diagd.probes import sites
from diagd.probes.own_files import under_way
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

TAKEN = 16  # dictionaries of which it is remembered when they were taken
NAMES = 3

# By id of a tensor in them, which is a new one for each dictionary, as long as that tensor lives: another may come to
# have its id. And by where it lies, for those who make new tensors of it (detach, a view): then the newest counts.
_taken: dict[tuple[str, int], int] = {}
_alive: dict[tuple[str, int], Callable[[], Any]] = {}  # who has that id
_lies: dict[tuple[str, int], int] = {}  # where the first tensor of each lies


def asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A module's state_dict is called; those of its children write into the same dictionary."""
    return True if len(args) < 2 and kwargs.get("destination") is None else None


def given(_: Any, state: Any) -> None:
    """It has returned this."""
    if STATE.live is None:
        return
    keys = _keys(state)
    for key in keys:
        _taken.pop(key, None)
        _taken[key], _lies[key] = under_way(), keys[-1][1]
    if keys:
        _remember(state, keys[0])
    while len(_taken) > 2 * TAKEN:
        oldest = next(iter(_taken))
        del _taken[oldest], _lies[oldest]
        _alive.pop(oldest, None)


def _remember(state: Any, key: tuple[str, int]) -> None:
    """Who has this id, unless it is a parameter (keep_vars): torch refuses to move one that is referred to weakly."""
    first = _first(state)
    known = not isinstance(first, sys.modules["torch"].nn.Parameter)
    _alive[key] = weakref.ref(first) if known else _nobody


def look(module: Any, state: Any, step: int) -> None:
    """A module has loaded this before the step; tells where all that it trains was its own."""
    if not _taken:
        return
    base = sys.modules["torch.nn"].Module  # not what a class of the script's makes of this method
    trained = {name: one for name, one in base.named_parameters(module) if one.requires_grad and one.numel()}
    if not trained or not all(_is_same(state.get(name), one) for name, one in trained.items()):
        _note_others({one.data_ptr() for one in trained.values()})
        return
    taken = next((_taken[key] for key in _keys(state) if key in _taken and _is_it(key, state)), step)
    if taken < step:
        names = ",".join(list(trained)[:NAMES])
        line = sites.text_from(sys._getframe(1))
        SIGNALS.fact("checkpoint/itself", f"{type(module).__name__}|{taken}|{len(trained)}|{names}|{line}", step)


def _nobody() -> None:
    """Stands for who is not known."""


def _is_it(key: tuple[str, int], state: Any) -> bool:
    return key[0] != "id" or _alive.get(key, _nobody)() is _first(state)


def _note_others(places: set[int]) -> None:
    """Other weights were written into those that lie there: dictionaries of them hold these now."""
    for key, place in _lies.items():
        if place in places:
            _taken[key] = 0


def forget() -> None:
    """A child of the process has taken none."""
    _taken.clear()
    _lies.clear()
    _alive.clear()


def _keys(state: Any) -> tuple[tuple[str, int], ...]:
    """What a dictionary's first tensor is known by."""
    first = _first(state)
    return (("id", id(first)), ("at", first.data_ptr())) if first is not None else ()


def _first(state: Any) -> Any:
    values = state.values() if isinstance(state, dict) else ()
    return next((one for one in values if hasattr(type(one), "untyped_storage")), None)


def _is_same(loaded: Any, own: Any) -> bool:
    return hasattr(type(loaded), "untyped_storage") and loaded.data_ptr() == own.data_ptr() != 0
