"""What clipping of gradients returns: the norm over all of them before it."""

import math
import sys
from typing import Any

from diagd.probes import later
from diagd.probes.box.layout import Live
from diagd.probes.compiling import around_eager
from diagd.probes.guard import Patches, Probe
from diagd.probes.own_gradients import WATCH
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
_STEP = int(Live.STEP)
_patches = Patches()


def install(probe: Probe, module: Any) -> None:
    """torch.nn.utils, or FSDP with a clipping of its own, is there."""
    torch = sys.modules["torch"]
    WATCH.probe = probe
    owner = module.FullyShardedDataParallel if module.__name__ == _FSDP1 else module
    _patches.replace(owner, "clip_grad_norm_", lambda f: around_eager(torch, probe, f, _before, _after, _ignore))


def remove() -> None:
    """Put torch's own functions back."""
    _patches.undo()
    WATCH.end()


def _ignore(*_: Any) -> None:
    """There is nothing to do."""


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args, kwargs


def _after(token: Any, result: Any) -> None:
    torch = sys.modules["torch"]
    # A DTensor may hold a part of the norm; to make it whole takes all ranks.
    value = later.plain(result) if type(result) is torch.Tensor else None
    if value is None or value.numel() != 1 or not STATE.recording or not later.possible(torch):
        return
    args, kwargs = token
    limit = kwargs.get("max_norm", args[1] if len(args) > 1 else None)
    step = max(STATE.live[_STEP], 0) + 1
    if isinstance(limit, (int, float)):
        SIGNALS.record("clip_norm/limit", float(limit), step)
    if value.device.type == "cpu":
        _tell(value.item(), step)
    else:
        with later.unseen(torch):
            later.read(value.detach().reshape(1), lambda values: _tell(values[0], step))
    if WATCH.trouble:
        WATCH.clipped(step)


def _tell(norm: float, step: int) -> None:
    SIGNALS.record("clip_norm", norm, step)
    if not math.isfinite(norm):
        WATCH.trouble += 1
