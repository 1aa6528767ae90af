"""Evaluation: from Module.eval on, once there were training steps, until the next backward pass."""

import sys
from typing import Any

from diagd.probes import phases
from diagd.probes.box.layout import Live, Phase
from diagd.probes.compiling import around_eager
from diagd.probes.guard import Patches, Probe
from diagd.probes.state import STATE

_patches = Patches()


def install(probe: Probe, module: Any) -> None:
    """torch.nn.modules.module is there."""
    torch = sys.modules["torch"]
    _patches.replace(module.Module, "eval", lambda f: around_eager(torch, probe, f, _before, _ignore, _ignore))


def remove() -> None:
    """Put torch's own method back."""
    _patches.undo()


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    live = STATE.live
    if live is not None and live[Live.STEP] > 0 and not STATE.backward_depth:
        STATE.evaluating = phases.now_in() is not None
        phases.enter(Phase.EVAL)


def _ignore(*_: Any) -> None:
    """There is nothing to do afterwards."""
