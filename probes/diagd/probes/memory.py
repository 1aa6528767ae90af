"""This rank's own memory after each step, and, where that grows, which of the script's containers grow with it.

Signals (bytes, after the optimizer's step, when the graph of the step is gone; where none of torch's steps, after the
backward pass):

    memory/floor   anonymous resident memory of this process
    memory/virtual its address space: what is allocated at once and filled later grows in the floor alone
    memory/device_allocated, memory/device_reserved, memory/device_active, memory/device_inactive_split (free, but in
                   pieces of segments in use), memory/device_peak (since the last reset, which is the script's to make),
                   memory/device_retries, memory/device_ooms (counts),
                   memory/device_total, memory/device_largest_free, memory/pinned: of the device of this rank, see
                   device_memory.py
    memory/state_ahead, memory/device_state_ahead: before the first step, see states_ahead.py

Facts, as JSON: memory/holder (what grows, empty once it has been emptied), memory/loader (the newest data loader).
"""

import os
import sys
import time
from _thread import get_ident
from typing import Any

from diagd.probes import allocations, device_memory, states_ahead, steps, suspicion, turns
from diagd.probes.box.layout import Live
from diagd.probes.budget import BUDGET
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

EVERY_NS = 20_000_000  # steps may be shorter than what is worth a sample
FIRST_LOOK_NS = 3_000_000  # what a look is thought to take before there was one
LOOK_NS = 4_000_000  # of CPU
SURE_LOOKS = 3  # of a process
PATIENCE = 10  # samples
MANY_STEPS = 1024  # between two samples, whatever short steps there were
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STEP = int(Live.STEP)
_patches = Patches()
_joined: list[Probe] = []


class _Watch:
    """What is remembered of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.statm = -1
        self.step = 0
        self.read_ns = 0
        self.each_ns = 0  # of a step, since the last sample
        self.wait_ns = 0  # until the next one
        self.suspicion = suspicion.Suspicion()
        self.tracing = allocations.Tracing()
        self.look_ns = FIRST_LOOK_NS
        self.looks = self.waited = 0

    def overdue(self) -> bool:
        """Whether a look that could not be afforded is made all the same: a few are, or a leak would have no name."""
        self.waited += 1
        return self.looks < SURE_LOOKS and self.waited >= PATIENCE


_watch = _Watch()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer or torch.utils.data.dataloader is there."""
    suspicion.GUARD.probe = probe
    if hasattr(module, "_BaseDataLoaderIter"):
        _patches.replace(module._BaseDataLoaderIter, "__init__", wrapper(probe, _loader, _ignore, _ignore))
        return
    _joined.append(probe)
    turns.join(probe, _following, before=_stepping, after=_stepped, passed=_passed)


def remove() -> None:
    """Take the hooks away."""
    _patches.undo()
    while _joined:
        turns.leave(_joined.pop())


def _following(step: int) -> int:
    """By how long the steps take of late, those that are worth a sample."""
    if not _watch.each_ns or _watch.tracing.on:
        return step + 1
    return step + min(max(_watch.wait_ns // _watch.each_ns, 1), MANY_STEPS)


def _ignore(*_: Any) -> None:
    """There is nothing to do afterwards."""


def _stepping(optimizer: Any) -> None:
    """Before its first step; a state that is not empty was made by an earlier one, or loaded."""
    if not optimizer.state and STATE.live is not None and get_ident() == STATE.trainer:
        step = max(STATE.live[_STEP], 0) + 1
        states_ahead.foretell(optimizer, step)
        device_memory.sample(step, time.monotonic_ns())


def _passed(roots: Any) -> None:
    if not steps.PROGRESS.optimizers_made and STATE.live is not None and STATE.live[_STEP] > 0:
        _stepped(roots)


def _stepped(optimizer: Any) -> None:
    live = STATE.live
    if live is None or get_ident() != STATE.trainer:
        return
    step, now_ns = live[_STEP], time.monotonic_ns()
    if _watch.tracing.on:
        _watch.tracing.follow(step)
    if not _is_due(step, now_ns):
        return
    virtual, resident, floor = own_bytes()
    SIGNALS.record("memory/floor", floor, step)
    SIGNALS.record("memory/virtual", virtual, step)
    device_memory.sample(step, now_ns)
    if _watch.suspicion.due(step, resident):
        _watch.tracing.begin(step)
        if BUDGET.affords(_watch.look_ns) or _watch.overdue():
            _look(step, resident)


def _is_due(step: int, now_ns: int) -> bool:
    """Whether it is time for a sample; where not, how long the steps take is known better all the same."""
    if _watch.pid != os.getpid():
        _watch.__init__()  # type: ignore[misc]  # a forked child begins anew
    period = EVERY_NS * BUDGET.stride
    if _watch.read_ns:
        if step <= _watch.step:
            return False
        gone = now_ns - _watch.read_ns
        _watch.each_ns, _watch.wait_ns = gone // (step - _watch.step), period - gone
        if gone < period:
            return False
    _watch.step, _watch.read_ns, _watch.wait_ns = step, now_ns, period
    return True


def own_bytes() -> tuple[int, int, int]:
    """This process's address space, its resident memory, and that without files and shared memory."""
    if _watch.statm < 0:
        _watch.statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    virtual, resident, shared, *_ = os.pread(_watch.statm, 200, 0).split()
    return int(virtual) * _PAGE, int(resident) * _PAGE, (int(resident) - int(shared)) * _PAGE


def _look(step: int, resident: int) -> None:
    began_ns = time.thread_time_ns()
    _watch.suspicion.look(sys._getframe(2), step, resident, began_ns + LOOK_NS)
    took = time.thread_time_ns() - began_ns
    _watch.look_ns, _watch.waited = took, 0
    _watch.looks += 1
    BUDGET.spent(took)


def _loader(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) > 1 and get_ident() == STATE.trainer and not STATE.evaluating:
        suspicion.note_loader(args[0], args[1])
    return None
