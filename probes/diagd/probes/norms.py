"""Norms of gradients as the optimizer is given them, and of parameters and what a step changes of them.

All norms are 2-norms. They come from one pass over the gradients right before a step, at steps that their number
decides: each one where that costs little of the step's time, else every 2nd, 4th, … up to every 64th. Of a DTensor it
is the part that lies on this rank.
"""

import math
import sys
import time
import weakref
from typing import Any

from diagd.probes import census, later, losses, turns
from diagd.probes.box.layout import Live
from diagd.probes.budget import BUDGET
from diagd.probes.guard import Probe
from diagd.probes.kept import Kept
from diagd.probes.named import NAMED
from diagd.probes.rates import Rates
from diagd.probes.sentinel import SENTINEL
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE
from diagd.probes.updates import Updates

EVERY_STEP = 8  # at first: most faults show there
MAX_EVERY = 64
PART = 0.004  # of a step's time
EACH = 4  # so many passes lie between two that tell of single parameters
AT_ONCE = 128  # parameters told of in one step
BURSTS = 4  # times that all of them are told of because something is not finite
MANY_OPTIMIZERS = 8
_RECORD_NS = 1000
_STEP = int(Live.STEP)

_joined: list[Probe] = []


class _Optimizer:
    """What is known of one."""

    def __init__(self, optimizer: Any, number: int) -> None:
        self.ref = weakref.ref(optimizer)
        self.suffix = f"@{number}" if number else ""
        self.title = f"grad_norm{self.suffix}"
        self.every = 1
        self.cost_ns = 0
        self.step_ns = 0
        self.last_ns = self.last_step = 0
        self.passes = self.turn = self.bursts = 0
        self.updates = Updates()
        self.kept = losses.WATCHED[id(optimizer)] = Kept()

    def pace(self, now: int, step: int) -> None:
        """Follow how long a step takes at least: on a busy machine its wait is no room for what is done in it."""
        if self.last_ns:
            took = (now - self.last_ns) // max(step - self.last_step, 1)
            self.step_ns = took if not self.step_ns or took < self.step_ns else self.step_ns + self.step_ns // 8
        self.last_ns, self.last_step = now, step

    def spent(self, ns: int) -> None:
        """A pass took so long. The least counts: a first time, or a busy machine, is no measure."""
        self.cost_ns = ns if not self.cost_ns or ns < self.cost_ns else self.cost_ns + self.cost_ns // 8
        part = self.cost_ns / (PART * max(self.step_ns, 1))
        self.every = min(1 << max(math.ceil(math.log2(part)), 0) if part > 1 else 1, MAX_EVERY)


class _Norms:
    """This process's."""

    def __init__(self) -> None:
        self.box: Any = None
        self.optimizers: dict[int, _Optimizer] = {}
        self.made = 0
        self.step = 0
        self.rates = Rates()

    def of(self, optimizer: Any) -> _Optimizer | None:
        """What is known of the optimizer; None where there are too many of them."""
        one = self.optimizers.get(id(optimizer))
        if one is not None and one.ref() is optimizer:
            return one
        for number in [number for number, other in self.optimizers.items() if other.ref() is None]:
            del self.optimizers[number]
            losses.WATCHED.pop(number, None)
        if len(self.optimizers) >= MANY_OPTIMIZERS:
            return None
        one = self.optimizers[id(optimizer)] = _Optimizer(optimizer, self.made)
        self.made += 1
        return one


NORMS = _Norms()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer is there."""
    _joined.append(probe)
    SENTINEL.probe = probe
    turns.join(probe, losses.following, before=_before, after=_after)


def remove() -> None:
    """Take the hooks away."""
    SENTINEL.take_down()
    while _joined:
        turns.leave(_joined.pop())


def _before(optimizer: Any) -> None:
    torch = sys.modules["torch"]
    if not STATE.recording or not later.possible(torch) or STATE.backward_depth:
        return  # inside a backward pass it steps parameter by parameter
    if NORMS.box is not STATE.box:
        NORMS.__init__()  # type: ignore[misc]  # a forked child is another rank
        NORMS.box = STATE.box
        losses.WATCHED.clear()
        later.forget()
    one = NORMS.of(optimizer)
    if one is None:
        return
    step = max(STATE.live[_STEP], 0) + 1
    one.pace(time.monotonic_ns(), step)
    later.arrived()
    NORMS.rates.before_step(optimizer, step)
    kept = one.kept.before_step()
    if kept is not None:
        SIGNALS.record(f"gradients/kept{one.suffix}", kept, step)
    if (discarded := one.kept.discards()) is not None:
        SIGNALS.record("gradients/discarded", discarded, step)
    if not one.suffix and (passes := one.kept.passes()):
        SIGNALS.record("gradients/passes", passes, step)
    if step <= EVERY_STEP or step % max(one.every, BUDGET.stride) == 0:
        began = time.thread_time_ns()
        with later.unseen(torch):
            _measure(torch, one, optimizer, step)
        one.spent(time.thread_time_ns() - began)
    if census.due(step):
        census.take(step)


def _after(optimizer: Any) -> None:
    one = NORMS.optimizers.get(id(optimizer))
    if one is None or one.ref() is not optimizer or not STATE.recording:
        return
    torch = sys.modules["torch"]
    if one.updates.begun and later.possible(torch):
        with later.unseen(torch):
            one.updates.after_step(torch)
    one.kept.after_step(optimizer, max(STATE.live[_STEP], 0))
    if STATE.live[_STEP] != NORMS.step:
        NORMS.step = STATE.live[_STEP]
        losses.step_completed()


def _measure(torch: Any, one: _Optimizer, optimizer: Any, step: int) -> None:
    parameters = NAMED.of(optimizer)  # never kept: it would keep a model that the script has let go of
    kinds: dict[Any, list[tuple[str | None, Any]]] = {}
    for parameter, name in parameters:
        gradient = later.plain(parameter.grad) if parameter.grad is not None else None
        if gradient is not None:
            kinds.setdefault((gradient.device, gradient.dtype), []).append((name, gradient))
    found = [(names, values) for (_, dtype), given in kinds.items() for names, values in [_norms(torch, dtype, given)]]
    if not found:
        return
    names = [name for some, _ in found for name in some]
    device = found[0][1].device
    values = (
        found[0][1]
        if len(found) == 1
        else torch.cat([v.to(device, torch.float32, non_blocking=True) for _, v in found])
    )
    scale = optimizer.__dict__.get("grad_scale")  # fused ones unscale while they step
    if scale is not None and hasattr(scale, "device"):
        values = values / scale.to(values.device, non_blocking=True)
    one.passes += 1
    told = _to_tell(one, len(names), step)
    later.read(values, lambda norms: _told(one, names, norms, step, told))
    one.updates.before_step(torch, parameters, step, max(one.every, BUDGET.stride))


def _norms(torch: Any, dtype: Any, given: list[tuple[str | None, Any]]) -> tuple[list[str | None], Any]:
    tensors = [tensor for _, tensor in given]
    if dtype == torch.float16:  # the sum of squares overflows in its own kind
        tensors = [torch.linalg.vector_norm(tensor, dtype=torch.float32) for tensor in tensors]
        return [name for name, _ in given], torch.stack(tensors)
    return [name for name, _ in given], torch.stack(torch._foreach_norm(tensors))


def _to_tell(one: _Optimizer, count: int, step: int) -> range:
    """Which of the parameters are told of one by one at this step."""
    if step > EVERY_STEP and one.passes % EACH:
        return range(0)
    size = min(count, AT_ONCE)
    if not BUDGET.affords(size * _RECORD_NS):
        return range(0)
    first = one.turn if one.turn < count else 0
    one.turn = first + size
    return range(first, min(first + size, count))


def _told(one: _Optimizer, names: list[str | None], norms: list[float], step: int, told: range) -> None:
    began = time.thread_time_ns()
    total = math.sqrt(sum(norm * norm for norm in norms))
    SIGNALS.record(one.title, total, step)
    if not math.isfinite(total) and one.bursts < BURSTS:
        one.bursts += 1
        told = range(min(len(norms), 1024))
        census.not_finite(names, norms, step)
    for index in told:
        name = names[index]
        if name is not None:
            SIGNALS.record("grad_norm/" + name, norms[index], step)
    census.gradients(names, norms)
    BUDGET.spent(time.thread_time_ns() - began if told else 0)
