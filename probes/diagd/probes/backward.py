"""Backward passes, by torch.autograd.backward: Tensor.backward calls it too.

A script that has no optimizer of torch's may take its gradients from torch.autograd.grad: where it asks for those of a
loss by its parameters, that is one too.
"""

import sys
import time
from typing import Any

from diagd.probes import autocast, cost, handled, overflow, phases, sites, steps, turns
from diagd.probes.box.layout import Live, Phase
from diagd.probes.compiling import around_eager
from diagd.probes.fast import FAST, Fast
from diagd.probes.guard import Patches, Probe
from diagd.probes.native import operations
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

_SITE, _BACKWARDS = int(Live.BACKWARD_SITE), int(Live.BACKWARDS)
_TIMED = 5  # of sixteen passes
_cost = cost.Sampled()
_patches = Patches()


class _Place:
    """How the line is found that a backward pass is called at."""

    here = staticmethod(sites.here)


def install(probe: Probe, module: Any) -> None:
    """torch.autograd is there."""
    torch = sys.modules["torch"]
    _Place.here = staticmethod(operations.faster("here", sites.here))
    before, after = operations.faster("pass_before", _before), operations.faster("pass_after", _after)
    _patches.replace(module, "backward", lambda f: around_eager(torch, probe, f, before, after, _failed))
    _patches.replace(module, "grad", lambda f: around_eager(torch, probe, f, _asking, _after, _failed))


def remove() -> None:
    """Put torch's own functions back."""
    _patches.undo()


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    live = STATE.live
    # Not with the steps that samples are taken at, which are multiples of powers of two.
    timed = time.thread_time_ns() if _is_timed(live) else 0
    STATE.evaluating = False
    STATE.backward_depth += 1
    if STATE.backward_depth == 1:
        phases.enter(Phase.BACKWARD)
        if live is not None and STATE.detail:
            live[_SITE] = _Place.here()
        if autocast.REGION.open and args:
            autocast.before_backward(args[0])
        if args and overflow.HALVES.seen:
            overflow.before_backward(args[0])
    if timed:
        _cost.add(2 * (time.thread_time_ns() - timed))  # what comes after the pass costs about the same
    roots = args[0] if args else kwargs.get("tensors")
    if STATE.backward_depth == 1:
        turns.before_pass(roots)
    return STATE.backward_depth, roots


def _asking(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Before torch.autograd.grad: None where it is no backward pass of a training step."""
    if steps.PROGRESS.optimizers_made or STATE.live is None or STATE.backward_depth:
        return None
    outputs: Any = args[0] if args else kwargs.get("outputs")
    inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
    torch = sys.modules["torch"]
    first = next(iter(inputs), None) if isinstance(inputs, (list, tuple)) else inputs
    is_loss = type(outputs) is torch.Tensor and outputs.numel() == 1
    return _before((outputs,), {}) if is_loss and type(first) is torch.nn.Parameter else None


def _is_timed(live: Any) -> bool:
    """One in sixteen, unless passes mostly go the compiled way, which times its own."""
    return live is not None and not FAST[Fast.PLAIN] and live[_BACKWARDS] & cost.MASK == _TIMED


def _after(token: Any, result: Any) -> None:
    STATE.backward_depth = token[0] - 1
    if token[0] == 1 and STATE.live is not None:
        turns.after_pass(token[1])
        phases.enter(Phase.OTHER)
        steps.backward_completed()


def _failed(token: Any, error: BaseException) -> None:
    STATE.backward_depth = token[0] - 1
    if token[0] == 1:
        phases.enter(Phase.OTHER)
        SIGNALS.fact("backward/broke", handled.text_of(error))
