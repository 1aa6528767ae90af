"""Checkpoints: the time inside torch.save, torch.distributed.checkpoint's saving, and safetensors', and their place."""

import sys
import time
from _thread import get_ident
from typing import Any

from diagd.probes import phases, sites
from diagd.probes.box.layout import Live, Phase
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.state import STATE

_SAVERS = ("save", "async_save", "save_state_dict", "save_file", "save_model")
_patches = Patches()


def install(probe: Probe, module: Any) -> None:
    """A module that saves is there."""
    for name in _SAVERS:
        if callable(getattr(module, name, None)) and (name != "save" or not module.__name__.startswith("safetensors")):
            _patches.replace(module, name, wrapper(probe, _before, _after, _after))


def remove() -> None:
    """Put the original functions back."""
    _patches.undo()


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    before = phases.now_in()
    phases.enter(Phase.CHECKPOINT)
    live = STATE.live
    if live is not None and before != Phase.CHECKPOINT and get_ident() == STATE.trainer:
        live[Live.SAVE_SITE], live[Live.SAVE_NS] = sites.site(sys._getframe(2)), time.monotonic_ns()
    return before


def _after(before: int, result: Any) -> None:
    phases.enter(before)
