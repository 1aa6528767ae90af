"""What the probes cost this rank: measured by the rank itself, held under the budget, and switched for a benchmark."""

import os
import time

from diagd.probes.box.layout import Live
from diagd.probes.budget import BUDGET
from diagd.probes.state import STATE

MASK = 15  # one in 16 operations is timed, and counted sixteenfold:
# not the one at which much else is due, which steps' numbers decide, nor with it one whose code has gone cold since.
TIMED = 11
SHARE = 0.01  # of the time
# What samples are thinned out to. Half, as what is measured here leaves out that all else finds the caches colder and
# that the other ranks wait; half of that in the long run, as most faults show early and later ones can wait.
AIM, LATER_AIM, LATER_NS = 0.005, 0.0025, 30_000_000_000
_WINDOW_NS = 3_000_000_000
_MIN_STEPS = 64  # twice as many at first, as most faults show early and a start is no measure
_PATIENCE = 4  # windows over the budget, though samples are as rare as can be, before operations lose details
_OVERHEAD = int(Live.OVERHEAD_NS)
_clock = time.thread_time_ns


class _Window:
    first_ns = 0
    began_ns = 0
    step = 0
    overhead_ns = 0
    over = 0  # windows


def forget() -> None:
    """A new box begins anew."""
    _Window.first_ns = _Window.began_ns = _Window.step = _Window.overhead_ns = _Window.over = 0
    BUDGET.forget()


class Sampled:
    """Adds up what one part of the probes costs, from the few times that it is timed.

    A time far above the typical one (a running median) is cut down to that. Python's way of operations tells the wall's
    clock, which on a busy machine also counts what other threads and processes took in between.
    """

    __slots__ = ("_typical",)

    def __init__(self) -> None:
        self._typical = 0

    def add(self, ns: int) -> None:
        """Count a time, also for those that were not taken."""
        typical = self._typical or ns
        self._typical = typical + (typical >> 4 if ns > typical else -(typical >> 4))
        STATE.live[_OVERHEAD] += min(ns, 3 * typical) * (MASK + 1)


def begin() -> tuple[int, int]:
    """A part of the probes begins that is timed each time; for `count`."""
    return _clock(), STATE.live[_OVERHEAD] if STATE.live is not None else 0


def count(begun: tuple[int, int]) -> None:
    """It is over: what it took, and what parts within it have counted for themselves only once.

    In CPU time of the thread: what others take from a busy machine meanwhile is no cost of the probes, and by the
    wall's clock it was several times what they do take.
    """
    live = STATE.live
    if live is not None:
        live[_OVERHEAD] = begun[1] + _clock() - begun[0]


def step_completed(step: int, now: int, every: int = 1) -> int:
    """A training step is over: look at the budget, and at the benchmark's switch.

    Returns:
        The step after which to look again: in so many, or when the benchmark switches.
    """
    block = STATE.settings.bench_steps
    if block and step % block == 0:
        _switch(step, now)
    steps = _MIN_STEPS if _Window.began_ns else 2 * _MIN_STEPS
    if now - _Window.began_ns > _WINDOW_NS and step - _Window.step >= steps:
        _judge(step, now)
    following = (step // every + 1) * every
    return min(following, (step // block + 1) * block) if block else following


def _judge(step: int, now: int) -> None:
    spent = STATE.live[_OVERHEAD] - _Window.overhead_ns
    took = now - _Window.began_ns
    if STATE.settings.bench_steps:
        took //= 2  # in the other half the probes were off
    _Window.first_ns = _Window.first_ns or now
    aim = LATER_AIM if now - _Window.first_ns > LATER_NS else AIM
    widened = not _Window.began_ns or BUDGET.widen(spent, aim * took)
    _Window.over = 0 if widened or spent <= SHARE * took else _Window.over + 1
    if _Window.over >= _PATIENCE and STATE.detail:
        _Window.over = 0
        STATE.detail -= 1
        left_out = "shapes and types of operations" if STATE.detail == 1 else "call sites of operations"
        STATE.note(f"left out to stay within the budget ({100 * spent / took:.1f} % of the time): {left_out}")
    _Window.began_ns, _Window.step, _Window.overhead_ns = now, step, STATE.live[_OVERHEAD]


def _switch(step: int, now: int) -> None:
    """A block of steps is over: write down whether the probes were on, and switch them off or on for the next."""
    line = f"{step} {now} {int(STATE.recording)}\n"
    path = os.path.join(STATE.settings.folder, f"{os.getpid()}.bench")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)
    on = not STATE.recording
    STATE.live[Live.ENABLED] = int(on)
    STATE.record(on)
