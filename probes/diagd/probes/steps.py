"""Training steps, from the optimizers, an engine that has steps of its own, or else backward passes."""

import threading
import time
from typing import Any

from diagd.probes import cost, ending, phases, rank, turns, unstepped
from diagd.probes.box.layout import Live, Phase
from diagd.probes.counting import StepCounter
from diagd.probes.fast import FAST, Fast
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.native import load
from diagd.probes.state import STATE

_STEP, _STEP_NS, _STARTED = int(Live.STEP), int(Live.STEP_NS), int(Live.STEP_STARTED_NS)
_OPTIMIZER_STEPS, _BACKWARDS = int(Live.OPTIMIZER_STEPS), int(Live.BACKWARDS)
_OPTIMIZER, _FORWARD, _BACKWARD = int(Phase.OPTIMIZER), int(Phase.FORWARD), int(Phase.BACKWARD)
_LOOKS = cost.MASK + 1  # steps between two looks at the budget
_OPEN, _PLAIN, _KNOWN, _PENDING, _LOOK = Fast.OPEN, Fast.PLAIN, Fast.KNOWN, Fast.PENDING, Fast.LOOK
_PATIENCE = 32  # backward passes: more than are usually accumulated for one step
_UNSEEN = "tensors, norms, rates: no optimizer of torch's steps here; tell of yours by diagd.probes.watch(optimizer=…)"
_patches = Patches()
_compiled = False
_hook_cost = cost.Sampled()
_joined: list[Probe] = []
_ident = threading.get_ident


class _Progress:
    """What has been seen in this process."""

    def __init__(self) -> None:
        self.counter = StepCounter()
        self.optimizers_made = 0
        self.single_refused = False  # no process group, and not the kind of process that is a rank without one


PROGRESS = _Progress()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer or DeepSpeed's engine is there."""
    if module.__name__.startswith("deepspeed"):
        _install_engine(probe, module)
        return
    global _compiled
    _compiled = load.chosen() is not None
    STATE.listeners.append(_at_switch)
    _patches.replace(module.Optimizer, "_patch_step_function", wrapper(probe, _made, _ignore, _ignore))
    turns.join_every(probe, _entered, _stepped)
    _joined.append(probe)


def remove() -> None:
    """Take the hooks away."""
    _patches.undo()
    while _joined:
        turns.leave(_joined.pop())


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        PROGRESS.__init__()  # type: ignore[misc]  # a forked child begins anew
        unstepped.forget()


def _ignore(*_: Any) -> None:
    """There is nothing to do afterwards."""


def _made(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    note_optimizer()
    if args:
        unstepped.made(args[0])


def note_optimizer() -> None:
    """Another optimizer was made; it may stand where one was that is gone."""
    PROGRESS.optimizers_made += 1
    FAST[_PLAIN] = FAST[_KNOWN] = 0


def _entered(optimizer: Any) -> None:
    if STATE.live is None and not _open_for_lone_rank():
        return
    if not STATE.is_rank and not _open_for_lone_rank():
        return
    if not STATE.recording:
        return
    if not STATE.backward_depth:
        STATE.trainer = _ident()
    if FAST[_OPEN] == 0 or phases.now_in() != _OPTIMIZER:
        FAST[_OPEN] = id(optimizer)
        phases.enter(_OPTIMIZER)


def attempted() -> None:
    """An optimizer would have stepped, but for its gradients: as a sign of a rank that is as good as a step."""
    if STATE.live is None:
        _open_for_lone_rank()


def _open_for_lone_rank() -> bool:
    if PROGRESS.single_refused:
        return False
    PROGRESS.single_refused = not rank.become_lone_rank()
    return not PROGRESS.single_refused


def _stepped(optimizer: Any) -> None:
    live = STATE.live
    if live is None:
        return
    now = time.monotonic_ns()
    timed = time.thread_time_ns() if _is_timed(live) else 0
    live[_OPTIMIZER_STEPS] += 1
    pending, FAST[_PENDING] = FAST[_PENDING], 0
    completed = PROGRESS.counter.stepped(optimizer, pending)
    if FAST[_OPEN] == id(optimizer):
        FAST[_OPEN] = 0
        if STATE.recording:
            phases.enter(_BACKWARD if STATE.backward_depth else _FORWARD)
    if completed and not STATE.engine:
        _complete(now)
    _say_what_is_plain(optimizer)
    if timed:
        _hook_cost.add(2 * (time.thread_time_ns() - timed))  # the hook before the step costs about the same


def _is_timed(live: Any) -> bool:
    """One in sixteen, unless steps mostly go the compiled way, which times its own."""
    return STATE.recording and not FAST[_PLAIN] and not (live[_OPTIMIZER_STEPS] + 1) & cost.MASK


def _say_what_is_plain(optimizer: Any) -> None:
    """Whether the steps to come may take the compiled way, as far as they are like this one."""
    alone = _compiled and PROGRESS.counter.alone and not STATE.engine and not STATE.exit_noted and STATE.is_rank
    FAST[_KNOWN] = id(optimizer)
    FAST[_PLAIN] = int(alone) * (1 if STATE.recording else 2 if STATE.settings.bench_steps else 0)


def _complete(now: int) -> None:
    """A training step is over."""
    live = STATE.live
    live[_STEP] = max(live[_STEP], 0) + 1
    live[_STEP_NS] = live[_STARTED] = now
    if STATE.exit_noted:
        ending.retract_exit()
    if live[_STEP] >= FAST[_LOOK]:
        FAST[_LOOK] = cost.step_completed(live[_STEP], now, _LOOKS)


def backward_completed() -> None:
    """A backward pass at the root is over; it is a step where there are no optimizers to go by.

    Also where there are some, but none has been seen to step in a long time: compiled ones pass their hooks by.
    """
    live = STATE.live
    live[_BACKWARDS] += 1
    if PROGRESS.optimizers_made and not live[_OPTIMIZER_STEPS]:
        unstepped.passed()
    blind = not live[_OPTIMIZER_STEPS] and (not PROGRESS.optimizers_made or live[_BACKWARDS] > _PATIENCE)
    if blind and not STATE.engine and STATE.is_rank:
        _complete(time.monotonic_ns())
        if live[_BACKWARDS] == 2 * _PATIENCE:
            STATE.note(_UNSEEN)


def _install_engine(probe: Probe, module: Any) -> None:
    engine = module.DeepSpeedEngine
    name = "_take_model_step" if hasattr(engine, "_take_model_step") else "step"
    _patches.replace(engine, name, wrapper(probe, _before_engine, _after_engine, _ignore))


def _before_engine(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if STATE.live is None:
        return None
    STATE.engine = True
    FAST[_PLAIN] = 0
    return args[0], getattr(args[0], "global_steps", 0)


def _after_engine(token: Any, result: Any) -> None:
    engine, before = token
    if STATE.live is not None and getattr(engine, "global_steps", before + 1) != before:
        _complete(time.monotonic_ns())
