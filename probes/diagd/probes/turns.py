"""When probes look at a training: one pair of hooks on all optimizers, and the step that each probe waits for.

Between two calls of ours everything else goes through the caches, so that a function costs many times what it costs in
a loop, and nearly as much if it does nothing. Probes that look at some steps only therefore say which one they wait
for; until the first of those comes, the hooks count the step and compare two numbers.
"""

import sys
import weakref
from collections.abc import Callable
from typing import Any

from diagd.probes import cost, odd
from diagd.probes.box.layout import Live
from diagd.probes.budget import BUDGET, SMALL
from diagd.probes.compiling import hook_eager
from diagd.probes.fast import FAST, Fast
from diagd.probes.guard import Probe
from diagd.probes.native import operations
from diagd.probes.state import STATE

NEVER = 1 << 62
MANY_OPTIMIZERS = 64
_STEP, _TURN = int(Live.STEP), Fast.TURN
_hooks: list[Any] = []

Look = Callable[[Any], None]


class Turn:
    """What one probe does in the training steps that it waits for."""

    __slots__ = ("after", "at", "before", "following", "passed", "passing", "probe")

    def __init__(self, probe: Probe, following: Callable[[int], int], looks: dict[str, Look | None]) -> None:
        self.probe = probe
        self.following = following
        self.before = looks.get("before")
        self.after = looks.get("after")
        self.passing = looks.get("passing")
        self.passed = looks.get("passed")
        self.at = 0  # the number of a training step, from 1

    def wake(self) -> None:
        """Look at the step under way, or the next one, whatever it waited for."""
        self.at = FAST[_TURN] = 0


class _Turns:
    """This process's."""

    def __init__(self) -> None:
        self.every: list[tuple[Probe, Look, Look]] = []  # what counts the steps
        self.all: list[Turn] = []
        self.muted = False  # what steps now only makes an optimizer's state, and trains nothing
        self.forget()

    def forget(self) -> None:
        """A new box begins anew."""
        FAST[_TURN] = 0  # the least of all
        self.step = 0  # the one in which turns were taken last, 0 once they wait for others
        self.met: dict[int, weakref.ref[Any]] = {}  # optimizers
        for turn in self.all:
            turn.at = 0

    def meet(self, optimizer: Any) -> None:
        """An optimizer steps for the first time: everybody looks at it."""
        if len(self.met) >= MANY_OPTIMIZERS:
            self.met = {number: ref for number, ref in self.met.items() if ref() is not None}
        self.met[id(optimizer)] = weakref.ref(optimizer)
        FAST[_TURN] = 0
        for turn in self.all:
            turn.at = 0

    def advance(self) -> None:
        """The step in which turns were taken is over: wait for the ones that follow."""
        step, self.step = self.step, 0
        for turn in self.all:
            if turn.at <= step:
                turn.at = turn.probe.run(turn.following, step) or NEVER
        FAST[_TURN] = min((turn.at for turn in self.all), default=NEVER)


TURNS = _Turns()


def join(probe: Probe, following: Callable[[int], int], **looks: Look | None) -> Turn:
    """Look at an optimizer's steps and at backward passes, at some training steps.

    Args:
        following: The next step to look at, given the number of the one that has been looked at, from 1. All look when
            an optimizer steps for the first time.
        looks: `before` and `after` are given the optimizer that steps; `passing` is given what torch.autograd.backward
            is called on, `passed` the same after it.
    """
    turn = Turn(probe, following, looks)
    TURNS.all.append(turn)
    FAST[_TURN] = 0
    if turn.before or turn.after:
        _hook(probe)
    return turn


def join_every(probe: Probe, before: Look, after: Look) -> None:
    """Be called at each step of each optimizer, before all that look at some steps only."""
    TURNS.every.append((probe, before, after))
    _hook(probe)


def leave(probe: Probe) -> None:
    """Look no more; the last one takes the hooks away."""
    TURNS.every = [one for one in TURNS.every if one[0] is not probe]
    TURNS.all = [turn for turn in TURNS.all if turn.probe is not probe]
    while _hooks and not TURNS.every and not TURNS.all:
        _hooks.pop().remove()


def small(step: int) -> int:
    """The step after this one at which to look at what is small: each one, or of short steps every few."""
    return next_multiple(step, max(BUDGET.stride // SMALL, 1))


def sampled(step: int, every: int) -> int:
    """The next step at which ranks sample what they do at one of so many steps, or at fewer where that costs much."""
    return next_multiple(step, every * BUDGET.stride)


def next_multiple(step: int, of: int) -> int:
    """The next number after this one that divides so."""
    return (step // of + 1) * of


def counted() -> int:
    """The training steps that have been made when an optimizer has stepped, as ranks number them."""
    done: int = STATE.live[_STEP]
    return max(done, 0) + 1 if STATE.engine else done


def _hook(probe: Probe) -> None:
    if not _hooks:
        torch, module = sys.modules["torch"], sys.modules["torch.optim.optimizer"]
        STATE.listeners.append(_at_switch)
        _hooks.append(
            module.register_optimizer_step_pre_hook(hook_eager(torch, probe, operations.faster("stepping", _stepping)))
        )
        _hooks.append(
            module.register_optimizer_step_post_hook(hook_eager(torch, probe, operations.faster("stepped", _stepped)))
        )


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        TURNS.forget()


def _stepping(optimizer: Any) -> None:
    if TURNS.muted:
        return
    for probe, before, _ in TURNS.every:
        if probe.on:
            before(optimizer)
    live = STATE.live
    if live is None or not STATE.recording:
        return
    known = TURNS.met.get(id(optimizer))
    if known is None or known() is not optimizer:
        TURNS.meet(optimizer)
    step = max(live[_STEP], 0) + 1
    if TURNS.step and TURNS.step < step:
        TURNS.advance()  # an engine counts its steps later than its optimizers make theirs
    if step >= FAST[_TURN]:
        TURNS.step = step
        _take(step, "before", optimizer)


def _stepped(optimizer: Any) -> None:
    if TURNS.muted:
        return
    live = STATE.live
    step = max(live[_STEP], 0) + 1 if live is not None else 0
    for probe, _, after in TURNS.every:
        if probe.on:
            after(optimizer)
    if live is None or not STATE.recording or not TURNS.step:
        return
    _take(step, "after", optimizer)
    if live[_STEP] >= step:
        TURNS.advance()


def before_pass(roots: Any) -> None:
    """A backward pass begins."""
    live = STATE.live
    if live is not None and STATE.recording and max(live[_STEP], 0) + 1 < FAST[_TURN]:
        odd.of_pass((roots,))  # who finds it so wakes its turn
    _pass("passing", roots)


def after_pass(roots: Any) -> None:
    """It is over."""
    _pass("passed", roots)


def _pass(what: str, roots: Any) -> None:
    live = STATE.live
    if live is not None and STATE.recording:
        step = max(live[_STEP], 0) + 1
        if step >= FAST[_TURN]:
            _take(step, what, roots)


def _take(step: int, what: str, subject: Any) -> None:
    began = cost.begin()
    for turn in TURNS.all:
        look = getattr(turn, what)
        if look is not None and turn.at <= step and turn.probe.on:
            turn.probe.run(look, subject)
    cost.count(began)
