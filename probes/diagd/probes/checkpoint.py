"""Checkpoints: the time inside torch.save, torch.distributed.checkpoint's saving, and safetensors'."""

from typing import Any

from diagd.probes import phases
from diagd.probes.box.layout import Phase
from diagd.probes.guard import Patches, Probe, wrapper

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
    return before


def _after(before: int, result: Any) -> None:
    phases.enter(before)
