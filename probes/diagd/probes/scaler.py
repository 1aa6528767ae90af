"""What a gradient scaler does: signals `scaler/scale`, its factor, and `scaler/skipped`, 1 where a step was left out.

Both at each call of its own, under the step under way: a step that was left out is no step.
"""

import sys
from typing import Any

from diagd.probes import later, overflow, steps
from diagd.probes.box.layout import Live
from diagd.probes.compiling import around_eager
from diagd.probes.guard import Patches, Probe
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

SUSPICIOUS = 3  # steps left out in a row, from which the graph of the next loss is looked at
_patches = Patches()
_OPTIMIZER_STEPS = int(Live.OPTIMIZER_STEPS)


class _Scaler:
    """What it has left out."""

    def __init__(self) -> None:
        self.in_a_row = 0


SCALER = _Scaler()


def install(probe: Probe, module: Any) -> None:
    """torch.amp.grad_scaler is there."""
    torch = sys.modules["torch"]
    _patches.replace(module.GradScaler, "step", lambda f: around_eager(torch, probe, f, _before, _after, _ignore))
    _patches.replace(module.GradScaler, "update", lambda f: around_eager(torch, probe, f, _self, _updated, _ignore))


def remove() -> None:
    """Put torch's own methods back."""
    _patches.undo()


def _ignore(*_: Any) -> None:
    """There is nothing to do."""


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args[0]._enabled:
        return None
    if STATE.live is None:
        steps.attempted()  # all of them may be left out, and no optimizer ever step
    return (STATE.live[_OPTIMIZER_STEPS],) if STATE.live is not None else None


def _after(token: Any, result: Any) -> None:
    if STATE.live is None:
        return
    skipped = STATE.live[_OPTIMIZER_STEPS] == token[0]
    SCALER.in_a_row = SCALER.in_a_row + 1 if skipped else 0
    SIGNALS.record("scaler/skipped", float(skipped))
    if SCALER.in_a_row >= SUSPICIOUS and SCALER.in_a_row & (SCALER.in_a_row - 1) == 0:
        overflow.saw_halves()
        overflow.HALVES.suspected = True


def _self(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args[0]._enabled else None


def _updated(scaler: Any, result: Any) -> None:
    scale = scaler.__dict__.get("_scale")
    torch = sys.modules["torch"]
    if scale is not None and later.possible(torch):
        step = max(STATE.live[int(Live.STEP)], 0) if STATE.live is not None else 0
        with later.unseen(torch):
            later.read(scale.reshape(1), lambda values: SIGNALS.record("scaler/scale", values[0], max(step, 1)))
