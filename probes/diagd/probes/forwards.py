"""What modules do in the forward pass of a few steps: global hooks that are in place for that pass alone.

Signals, each at those steps only:

    autocast/share             share of the calls of modules with parameters that ran under autocast, gradients on
    autocast/again             of those that ran under it with gradients off, and again with them in the backward pass
                               (a checkpoint that recomputes), the share that did so under it again
    forward/absmax/<module>    largest absolute value of an output in float16, of some modules in turn

Which modules no longer run under it is told from here as well, see uncast.py.

No hooks are placed where something was compiled: its guards would see them. The fact `autocast/swapped` comes from here
too, see autocast.py.
"""

import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from diagd.probes import autocast, compiling, inventory, later, overflow, references, turns, uncast
from diagd.probes.budget import BUDGET
from diagd.probes.guard import EAGER, Probe
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

ALWAYS = frozenset({1, 2, 3, 12, 24, 40, 64, 96})  # after these steps the next pass is looked at in any case
EVERY = 16  # after that, as the budget allows
OUTPUTS = 8  # whose largest value is taken in one pass
HOT = 4096.0  # modules that have come so far are taken each time
WEIGHTS = 8  # whose content is compared between calls in one region
PIECE = 16  # elements of a weight

_joined: list[Probe] = []


class _Pass:
    """The pass that is looked at, and what earlier ones have shown."""

    def __init__(self) -> None:
        self.open: list[Any] = []  # handles of the hooks
        self.step = 0
        self.cost_ns = 0
        self.began_ns = 0
        self.seen_ns = 0
        self.depth = 0
        self.roots: list[weakref.ref[Any]] = []
        self.calls = self.under = 0
        self.hidden: set[int] = set()  # modules that were called under autocast with gradients off
        self.repeating = False  # the backward pass has begun, in which they may be called again
        self.again = self.again_under = 0
        self.halves = 0  # outputs in float16 in this pass
        self.halves_before = 0
        self.turn = 0
        self.hot: set[int] = set()
        self.taken: list[tuple[int, Any]] = []  # module, largest value
        self.casts: dict[int, tuple[int, Any]] = {}  # module -> serial of the cache, a piece of its weight


PASS = _Pass()
_place: list[Callable[[], list[Any]]] = []


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer is there."""
    torch = sys.modules["torch"]
    STATE.listeners.append(_at_switch)
    _joined.append(probe)
    turns.join(probe, _following, after=_after_step, passing=_before_backward, passed=_after_backward)
    before, after = _guarded(torch, probe, _entered), _guarded(torch, probe, _returned, _returned_elsewhere)

    def place() -> list[Any]:
        modules = torch.nn.modules.module
        return [modules.register_module_forward_pre_hook(before), modules.register_module_forward_hook(after)]

    _place[:] = [place]


def remove() -> None:
    """Take all hooks away."""
    close()
    while _joined:
        turns.leave(_joined.pop())


def _following(step: int) -> int:
    if PASS.open or PASS.calls or uncast.PARTS.again:
        return step + 1
    return min([early for early in ALWAYS if early > step] + [turns.next_multiple(step, max(EVERY, BUDGET.stride))])


def _at_switch(recording: bool) -> None:
    close()
    if STATE.box is None:
        PASS.__init__()  # type: ignore[misc]  # a forked child begins anew
        references.forget()


def _guarded(
    torch: Any, probe: Probe, function: Callable[[Any, Any], None],
    elsewhere: Callable[[Any, Any], None] = lambda module, output: None,
) -> Callable[..., None]:  # fmt: skip
    """A hook that changes nothing, and nothing is seen of by what compiles; `elsewhere` is for other threads."""

    def hook(module: Any, arguments: Any, output: Any = None) -> None:
        if not torch.compiler.is_compiling() and probe.on:
            try:
                (function if threading.get_ident() == STATE.trainer else elsewhere)(module, output)
            except Exception as error:  # noqa: BLE001 - Probe.run, without the call of it
                probe.failed(error)

    hook.__code__ = hook.__code__.replace(co_filename=EAGER)
    return hook


def _after_step(optimizer: Any) -> None:
    step = turns.counted() if STATE.live is not None else 0
    if step == PASS.step or not STATE.recording:
        return
    PASS.step = step
    close()
    if step in ALWAYS or uncast.PARTS.again or (step % EVERY == 0 and BUDGET.affords(PASS.cost_ns)):
        _open()


def _open() -> None:
    torch = sys.modules["torch"]
    if compiling.in_use() or not later.possible(torch):
        return
    PASS.began_ns = time.thread_time_ns()
    PASS.depth = PASS.calls = PASS.under = PASS.halves = PASS.seen_ns = 0
    PASS.turn += 1
    uncast.begin()
    PASS.open = _place[0]()


def _before_backward(_: Any) -> None:
    """The first backward pass of the step begins: what led to it has been seen."""
    if not (PASS.calls or PASS.hidden or uncast.PARTS.off) or PASS.repeating:
        return
    began = time.thread_time_ns()
    references.tell(top for root in PASS.roots if (top := root()) is not None)
    if PASS.calls:
        SIGNALS.record("autocast/share", PASS.under / PASS.calls)
    uncast.tell(name_of)
    if PASS.taken:
        _tell_largest()
    PASS.repeating = bool(PASS.hidden)
    if not PASS.repeating:
        close()
    PASS.cost_ns = PASS.seen_ns + time.thread_time_ns() - began
    BUDGET.spent(PASS.cost_ns)


def _after_backward(_: Any) -> None:
    if PASS.repeating:
        if PASS.again:
            SIGNALS.record("autocast/again", PASS.again_under / PASS.again)
        close()


def close() -> None:
    """Take the hooks away."""
    while PASS.open:
        PASS.open.pop().remove()
    uncast.end()
    PASS.halves_before, PASS.calls = PASS.halves, 0
    PASS.again, PASS.again_under, PASS.repeating = 0, 0, False
    PASS.hidden.clear()
    PASS.taken.clear()
    PASS.casts.clear()


def _entered(module: Any, _: Any) -> None:
    if PASS.depth == 0 and len(PASS.roots) < OUTPUTS and not any(ref() is module for ref in PASS.roots):
        PASS.roots.append(weakref.ref(module))
    PASS.depth += 1


def _returned(module: Any, output: Any) -> None:
    began = time.perf_counter_ns()
    PASS.depth = max(PASS.depth - 1, 0)
    parameters = module.__dict__.get("_parameters")
    if parameters:
        _note_call(module, parameters)
    dtype = getattr(output, "dtype", None)
    if dtype is sys.modules["torch"].float16:
        _note_half(module, output)
    PASS.seen_ns += time.perf_counter_ns() - began


def _returned_elsewhere(module: Any, _: Any) -> None:
    """A part of the forward pass in a thread of the script's own: autocast's regions hold in the one that entered them.

    Two threads at once may lose one's count, no more.
    """
    parameters = module.__dict__.get("_parameters")
    if parameters and (weight := _first(parameters)) is not None:
        _count(sys.modules["torch"], module, weight)


def _first(parameters: dict[str, Any]) -> Any:
    weight = parameters.get("weight")
    return weight if weight is not None else next((p for p in parameters.values() if p is not None), None)


def _count(torch: Any, module: Any, weight: Any) -> bool:
    """Count a call; whether it was under autocast."""
    under: bool = torch.is_autocast_enabled(weight.device.type)
    _note_part(torch, module, weight, under)
    if PASS.repeating:
        if torch.is_grad_enabled() and id(module) in PASS.hidden:
            PASS.again += 1
            PASS.again_under += under
    elif torch.is_grad_enabled():
        PASS.calls += 1
        PASS.under += under
    elif under and weight.requires_grad:
        PASS.hidden.add(id(module))
    return under


def _note_part(torch: Any, module: Any, weight: Any, under: bool) -> None:
    """What runs neither in a region nor with gradients trains nothing; another thread's regions are its own."""
    inside = autocast.REGION.open and threading.get_ident() == STATE.trainer
    trains = weight.requires_grad and weight.dtype is torch.float32 and (under or inside or torch.is_grad_enabled())
    if trains and not PASS.repeating:
        uncast.note(module, under, inside)


def _note_call(module: Any, parameters: dict[str, Any]) -> None:
    torch, weight = sys.modules["torch"], _first(parameters)
    if weight is None:
        return
    under = _count(torch, module, weight)
    if under and autocast.REGION.open and torch.is_autocast_cache_enabled():
        _compare(torch, module, weight)


def _compare(torch: Any, module: Any, weight: Any) -> None:
    """A weight of which autocast keeps a cast: has it another content than when the module was called before?"""
    known = PASS.casts.get(id(module))
    if known is None and len(PASS.casts) >= WEIGHTS:
        return
    kinds = torch.nn.Linear, torch.nn.modules.conv._ConvNd
    plain = type(weight) is torch.nn.Parameter and weight.dtype is torch.float32 and later.plain(weight) is not None
    if not isinstance(module, kinds) or not plain or not (weight.requires_grad and weight.is_leaf):
        return
    if not later.possible(torch):  # a graph is being captured
        return
    with later.unseen(torch):
        piece = weight.detach().reshape(-1)[:PIECE].clone()
        if known is None or known[0] != autocast.REGION.serial:
            PASS.casts[id(module)] = autocast.REGION.serial, piece
            return
        other = (piece != known[1]).any().double().reshape(1)
        later.read(other, lambda values: autocast.swapped(name_of(module)) if values[0] else None)


def _note_half(module: Any, output: Any) -> None:
    PASS.halves += 1
    overflow.saw_halves()
    every = max(1, PASS.halves_before // OUTPUTS)
    due = PASS.halves % every == PASS.turn % every or id(module) in PASS.hot
    torch = sys.modules["torch"]
    if due and len(PASS.taken) < OUTPUTS and later.plain(output) is not None and later.possible(torch):
        with later.unseen(torch):
            PASS.taken.append((id(module), output.detach().abs().amax().float()))


def _tell_largest() -> None:
    torch = sys.modules["torch"]
    names = {id(module): name for root in PASS.roots if (top := root()) is not None
             for module, name in _named(top)}  # fmt: skip
    taken = [(number, names.get(number)) for number, _ in PASS.taken]
    step = PASS.step + 1

    def tell(values: list[float]) -> None:
        for (number, name), value in zip(taken, values, strict=True):
            if not value < HOT and len(PASS.hot) < OUTPUTS:
                PASS.hot.add(number)
            if name is not None:
                SIGNALS.record(f"forward/absmax/{name}", value, step)

    with later.unseen(torch):
        later.read(torch.stack([value for _, value in PASS.taken]), tell)


def name_of(module: Any) -> str:
    """The module's name in the model whose call it was part of."""
    for root in PASS.roots:
        top = root()
        for other, name in _named(top) if top is not None else ():
            if other is module:
                return name
    return type(module).__name__


def _named(top: Any) -> list[tuple[Any, str]]:
    torch = sys.modules["torch"]
    title = inventory.title(top)
    named = ((module, inventory.own_path(path)) for path, module in torch.nn.Module.named_modules(top))
    return [(module, f"{title}.{path}" if path else title) for module, path in named]
