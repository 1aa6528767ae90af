"""Gradients for the ledger: of the parameters of one optimizer, as it is given them, after clipping and unscaling.

A gradient is taken in the step after which its parameter is taken too, so that the two can be told apart by which parts
first. Of one that a step before has left no more is known than that it is the same tensor; None is no gradient.
"""

import weakref
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from diagd.probes import inventory
from diagd.probes.box.ledger import TURN, Kind
from diagd.probes.budget import BUDGET
from diagd.probes.sweeps import SWEEP


class Given:
    """The rows of an optimizer's gradients, by when they are taken."""

    def __init__(self, optimizer: Any, rows: Mapping[int, Any]) -> None:
        self.rows: list[Any] = []
        self.slots: dict[int, list[Any]] = {}
        self.step = 0  # the last one that was taken; of several steps of this optimizer in a training step, the first
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                row = rows.get(id(parameter))
                if row is not None:
                    self.rows.append(row)
                    self.slots.setdefault(slot(row.name), []).append(row)

    def due(self, step: int, early: bool) -> list[Any]:
        """What to take in this step, all of it where it is an early one."""
        if step == self.step:
            return []
        self.step = step
        return (
            self.rows
            if early or SWEEP.takes_gradients(step)
            else self.slots.get(step % TURN, [])
            if is_turn(step, TURN)
            else []
        )


def is_turn(step: int, turn: int) -> bool:
    """Whether tensors are taken in this turn of so many steps, or in fewer as more would cost too much."""
    return step // turn % BUDGET.stride == 0


def next_turn(step: int, turn: int) -> int:
    """The first step after this one that lies in a turn in which tensors are taken."""
    number = (step + 1) // turn
    return step + 1 if number % BUDGET.stride == 0 else (number // BUDGET.stride + 1) * BUDGET.stride * turn


def slot(name: str) -> int:
    """The place of a parameter, and of its gradient, in the turn of steps: by its name alone, as on every rank."""
    return zlib.crc32(f"{int(Kind.PARAMETER)} {name}".encode("utf-8", "replace")) % TURN


def reader(module: Any, leaf: str) -> Callable[[], Any]:
    """What the parameter's gradient is at any later time, of a DTensor the part that lies here; keeps nothing alive."""
    ref = weakref.ref(module)

    def read() -> Any:
        there = ref()
        parameter = (there.__dict__.get("_parameters") or {}).get(leaf) if there is not None else None
        gradient = parameter.grad if parameter is not None else None
        if gradient is None or not _settled(gradient):
            return None
        return inventory.local(gradient)

    return read


def _settled(gradient: Any) -> bool:
    """Whether it is all there: of a DTensor, that no sum over ranks is still to be made."""
    spec = getattr(gradient, "_spec", None)
    return spec is None or not any(placement.is_partial() for placement in spec.placements)
