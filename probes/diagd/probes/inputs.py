"""What goes into the model at a step, as a fingerprint: ranks that train on the same input show the same one.

Of a wrapped model (DDP, FSDP, DeepSpeed) it is the arguments of the wrapper's forward, which also knows the ranks that
each should have an input of their own. Of any other, the arguments of the first module that is called with gradients
after an optimizer's step: a hook on all modules is there only until then, and never where torch.compile is in use.

    data/input     the fingerprint (52 bits) of a step's first forward pass
    data/replicas  fact: the wrapper's name and its ranks ("ddp 0:7:1" as first, last and step, or "ddp 0,1,4")
    data/replica_groups fact: the groups among these ranks that are the wrapper's own, in which none shares a sample
    data/dropout   fact: modules that drop elements at random, and are in training mode
"""

import sys
import threading
from typing import Any

from diagd.probes import (
    compiling,
    cost,
    exchanges,
    fed,
    fingerprint,
    host_randomness,
    modes,
    phases,
    placement,
    randomness,
    rows,
    turns,
)  # fmt: skip
from diagd.probes.box.layout import Live
from diagd.probes.budget import BUDGET
from diagd.probes.compiling import around_eager
from diagd.probes.guard import EAGER, Patches, Probe
from diagd.probes.modes import MODES
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

EARLY_STEPS = 16  # each of them is looked at
EVERY = 4  # steps, after that
DROPOUT_NAMES = 3
_STEP = int(Live.STEP)
_FORWARDS = {
    "torch.nn.parallel.distributed": ("DistributedDataParallel", "forward"),
    "torch.distributed.fsdp.fully_sharded_data_parallel": ("FullyShardedDataParallel", "forward"),
    "torch.distributed.fsdp._fully_shard._fsdp_state": ("FSDPState", "_pre_forward"),
    "deepspeed.runtime.engine": ("DeepSpeedEngine", "forward"),
}

_patches = Patches()
_joined: list[Probe] = []


class _Inputs:
    """This process's."""

    def __init__(self) -> None:
        self.step = -1  # whose input was looked at
        self.wrapped = False  # a wrapper was seen to be called
        self.armed: Any = None  # the hook on all modules, while it is there
        self.told_replicas = False
        self.told_exchanges = False
        self.looked_for_dropout = False


INPUTS = _Inputs()


def install(probe: Probe, module: Any) -> None:
    """A module with a wrapper, or torch.optim.optimizer, is there."""
    torch = sys.modules["torch"]
    known = _FORWARDS.get(module.__name__)
    if known is not None:
        owner = getattr(module, known[0], None)
        if owner is not None:
            _patches.replace(owner, known[1], lambda f: around_eager(torch, probe, f, _before, _ignore, _ignore))
        return
    STATE.listeners.append(_at_switch)
    _joined.append(probe)
    turns.join(probe, _following, after=lambda _: _arm(probe))


def remove() -> None:
    """Take the hooks away."""
    _disarm()
    _patches.undo()
    while _joined:
        turns.leave(_joined.pop())


def _following(step: int) -> int:
    if step < EARLY_STEPS or INPUTS.armed is not None or fingerprint.pending():
        return step + 1
    return min(turns.sampled(step, EVERY), exchanges.AT_STEP if step < exchanges.AT_STEP else turns.NEVER)


def is_due(step: int) -> bool:
    """By the number of completed steps, which is the same on every rank, and how rare samples have to be there."""
    return step < EARLY_STEPS or step % (EVERY * BUDGET.stride) == 0


def _ignore(*_: Any) -> None:
    """There is nothing to do afterwards."""


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        _disarm()
        INPUTS.__init__()  # type: ignore[misc]  # a forked child is another rank, or none
        modes.forget()


def _wanted() -> bool:
    """Whether this is a step's first forward pass that will be trained on, and its turn."""
    live = STATE.live
    if live is None or not is_due(step := max(live[_STEP], 0)) or step == INPUTS.step or STATE.backward_depth:
        return False
    return _is_trained()


def _is_trained() -> bool:
    """Whether what is computed now will be trained on: in the thread that trains, and with gradients."""
    trains = STATE.live is not None and not STATE.backward_depth and threading.get_ident() == STATE.trainer
    return trains and bool(sys.modules["torch"].is_grad_enabled())


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A wrapper's forward; FSDP2's hook is given the module and its arguments as such."""
    phases.forward_begins()
    if _module_of(args) is args[0]:
        fed.take(sys.modules["torch"], args[1:], kwargs)
    if not _wanted():
        if MODES.unsure and _is_trained():
            modes.look(_module_of(args), max(STATE.live[_STEP], 0))
        return
    began = cost.begin()
    wrapper, given = args[0], args[1:]
    found = _ranks(wrapper) if not INPUTS.told_replicas else None  # of thousands of ranks not at each look
    if found is not None and placement.is_alone(found[1]):
        return  # then it tells of no other rank, and the first module that is called does for it
    module = _module_of(args)
    if module is not wrapper:
        given, kwargs = args[2], args[3]
    modes.look(module, max(STATE.live[_STEP], 0))
    if module.training:
        INPUTS.wrapped = True
        randomness.at_forward()
        if not INPUTS.told_replicas:
            INPUTS.told_replicas = _tell_replicas(wrapper, found)
        _look(module, given, kwargs)
    cost.count(began)


def _module_of(args: tuple[Any, ...]) -> Any:
    return args[1] if type(args[0]).__name__ == "FSDPState" else args[0]


def _look(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    INPUTS.step = step = max(STATE.live[_STEP], 0)
    fingerprint.collect()
    fingerprint.take((args, kwargs), lambda value: SIGNALS.record("data/input", value, step + 1))
    rows.look((args, kwargs), step)
    host_randomness.at_input((args, kwargs), step + 1)
    if not INPUTS.looked_for_dropout:
        INPUTS.looked_for_dropout = True
        names = _dropping(module)
        if names:
            SIGNALS.fact("data/dropout", ",".join(names))


def _tell_replicas(wrapper: Any, found: tuple[str, list[int]] | None) -> bool:
    """The ranks over which the wrapper averages: each is meant to have an input of its own. False: not known yet."""
    if found is not None:
        SIGNALS.fact("data/replicas", f"{found[0]} {exchanges.written(sorted(found[1]))}")
        if type(wrapper).__name__ == "FSDPState" and (parts := placement.parts_of_mesh(wrapper)):
            SIGNALS.fact("data/replica_groups", " ".join(exchanges.written(sorted(ranks)) for ranks in parts))
    return found is not None


def _ranks(wrapper: Any) -> tuple[str, list[int]] | None:
    distributed = sys.modules["torch.distributed"]
    kind = type(wrapper).__name__
    if kind == "FSDPState":
        ranks = placement.fully_sharded_over(wrapper)
        return ("fsdp2", ranks) if ranks else None
    group = getattr(wrapper, "process_group", None) or getattr(wrapper, "data_parallel_group", None)
    if group is None:
        return None
    name = {"DistributedDataParallel": "ddp", "FullyShardedDataParallel": "fsdp"}.get(kind, "engine")
    return name, list(distributed.get_process_group_ranks(group))  # communicates with nobody


def _dropping(module: Any) -> list[str]:
    """Modules that drop at random (by torch's class or one that is called so), as the model names them."""
    torch = sys.modules["torch"]
    base = torch.nn.modules.dropout._DropoutNd
    found = []
    for name, part in torch.nn.Module.named_modules(module):
        kind = type(part)
        if (base in kind.__mro__ or "drop" in kind.__name__.lower()) and part.training:
            rate = part.__dict__.get("p", part.__dict__.get("drop_prob", 0))
            if type(rate) is float and rate > 0:
                found.append(name.removeprefix("module.") or kind.__name__)
    return found[:DROPOUT_NAMES]


def _arm(probe: Probe) -> None:
    """After an optimizer's step: wait for the first module that is called, where no wrapper tells."""
    fingerprint.collect()
    if STATE.live is None or not _has_others():
        return
    step = max(STATE.live[_STEP], 0)
    if step == exchanges.AT_STEP and not INPUTS.told_exchanges:
        INPUTS.told_exchanges = True
        exchanges.tell(INPUTS.wrapped)
    if INPUTS.wrapped:
        return
    if INPUTS.armed is None and step != INPUTS.step and is_due(step) and not compiling.in_use():
        register = sys.modules["torch.nn.modules.module"].register_module_forward_pre_hook
        INPUTS.armed = register(_hook(sys.modules["torch"], probe))


def _has_others() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_initialized() and distributed.get_world_size() > 1


def _hook(torch: Any, probe: Probe) -> Any:
    def hook(module: Any, args: tuple[Any, ...]) -> None:
        if not torch.compiler.is_compiling() and probe.on:
            probe.run(_first_call, module, args)

    hook.__code__ = hook.__code__.replace(co_filename=EAGER)
    return hook


def _first_call(module: Any, args: tuple[Any, ...]) -> None:
    if _wanted():
        began = cost.begin()
        _disarm()
        randomness.at_forward()
        modes.look(module, max(STATE.live[_STEP], 0))
        _look(module, args, {})
        cost.count(began)


def _disarm() -> None:
    if INPUTS.armed is not None:
        INPUTS.armed.remove()
        INPUTS.armed = None
