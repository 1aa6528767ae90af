"""By which a parameter is known again: a few of its values, as they were when the run wrote a checkpoint.

Looked at where a file is written, and once more in the first step after it was read, before the optimizer changes
anything. So is what the optimizer keeps for it. What came back otherwise, or as what another parameter had, is told by
name:

    checkpoint/changed    fact: "3 of 12|NAME<OTHER,NAME", OTHER where it now holds what that one held
    checkpoint/moved      fact: "3 of 12|exp_avg|NAME<OTHER", where the optimizer keeps for it what it kept for OTHER
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from diagd.probes import few_values, naming
from diagd.probes.box.layout import Live
from diagd.probes.few_values import Mark, Marks
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

FILES = 64  # the newest ones that were written; those of one step share what is kept
PARAMETERS = 2048
NAMES = 6  # that are told
REST = 200  # of what a look takes, before the next: who writes at each step is looked at now and then


class Kept:
    """Marks of parameters, and of what their optimizer keeps for them, by the parameters' names.

    Of tensors on a device they come some steps later.
    """

    def __init__(self, weights: list[tuple[str, Any]], moments: list[tuple[str, Any]]) -> None:
        self.weights: Marks = {}
        self.moments: Marks = {}
        self._then: list[Callable[[], None]] = []
        self._missing = 2
        self._ask(weights, self.weights)
        self._ask(moments, self.moments)

    @property
    def is_there(self) -> bool:
        """Whether all have come."""
        return self._missing <= 0

    @property
    def is_empty(self) -> bool:
        """Whether there are none, and none will come."""
        return self.is_there and not self.weights and not self.moments

    def when_there(self, then: Callable[[], None]) -> None:
        """Call it once all have come; now, where they have."""
        self._then.append(then)
        self._look()

    def _ask(self, named: list[tuple[str, Any]], marks: Marks) -> None:
        times = few_values.take(named[:PARAMETERS], lambda came: self._come(marks, came))
        self._missing += times - 1  # of what is on several devices, each comes by itself

    def _come(self, marks: Marks, came: Marks) -> None:
        marks.update(came)
        self._missing -= 1
        self._look()

    def _look(self) -> None:
        while self.is_there and self._then:
            self._then.pop(0)()


_NOTHING = Kept([], [])


class _Marks:
    """This process's."""

    def __init__(self) -> None:
        self.written: dict[str, Kept] = {}  # by path
        self.expected = _NOTHING  # that of the file that was read since the last step
        self._newest: tuple[int, Kept] = (-1, _NOTHING)  # step, marks: the files of one step share them
        self._next_ns = 0

    def take(self, path: str, step: int, optimizers: Iterable[Any] = ()) -> Kept | None:
        """The run has written tensors into this file; what is kept of them, where it was looked at now.

        Args:
            optimizers: The run's own, as far as they are known.
        """
        self.written.pop(path, None)
        if threading.get_ident() != STATE.trainer:  # what a thread of the script's writes is from an earlier step
            return None
        new = step != self._newest[0]
        if new:
            began = time.monotonic_ns()
            if began < self._next_ns:
                return None
            self._newest = step, _as_it_is(list(optimizers))
            self._count(began)
        self.written[path] = self._newest[1]
        while len(self.written) > FILES:
            self.written.pop(next(iter(self.written)))
        return self._newest[1] if new else None

    def _count(self, began: int) -> None:
        took = time.monotonic_ns() - began
        self._next_ns = began + REST * took
        if STATE.live is not None:
            STATE.live[int(Live.OVERHEAD_NS)] += took

    def expect(self, path: str) -> None:
        """It has read this file."""
        self.expected = self.written.get(path, self.expected)

    def compare(self, optimizer: Any, now: Kept, step: int) -> None:
        """Before the first step after that: what has not come back, and what has come back for another.

        Args:
            now: What the optimizer and its parameters hold.
        """
        expected, self.expected = self.expected, _NOTHING
        kinds = {name: kind for name, one in _named(optimizer) if (kind := _kept(one, optimizer)) is not None}
        now.when_there(lambda: self._tell(expected, now, kinds, step))

    def _tell(self, expected: Kept, now: Kept, kinds: dict[str, str], step: int) -> None:
        if not expected.is_there:
            return
        known = {name: mark for name, mark in now.weights.items() if name in expected.weights}
        changed = [name for name, mark in known.items() if mark != expected.weights[name]]
        held = _holders(expected.weights)
        told = [f"{name}<{held[known[name]]}" if known[name] in held else name for name in changed]
        told.sort(key=lambda text: "<" not in text)
        if changed:
            SIGNALS.fact("checkpoint/changed", f"{len(changed)} of {len(known)}|{','.join(told[:NAMES])}"[:900], step)
        if moved := _moved(expected, now):
            pairs = ",".join(moved[:NAMES])
            what = kinds.get(moved[0].partition("<")[0], "")
            SIGNALS.fact("checkpoint/moved", f"{len(moved)} of {len(now.moments)}|{what}|{pairs}"[:900], step)


KNOWN = _Marks()


def kept_by(optimizer: Any) -> Kept:
    """Marks of an optimizer's parameters, and of what it keeps for them."""
    named = _named(optimizer)
    return Kept(named, _moments(named, optimizer))


def _as_it_is(optimizers: list[Any]) -> Kept:
    """All parameters of all models, with those that only an optimizer has, and the moments of all of them."""
    owned = [(optimizer, _named(optimizer)) for optimizer in optimizers]
    alone = [(name, one) for _, named in owned for name, one in named if NAMED.name(one) is None]
    counts = Counter(name for name, _ in alone)  # named by their shapes: not if two have the same one
    weights = [*((one.name, tensor) for one, tensor in NAMED.held()), *(p for p in alone if counts[p[0]] == 1)]
    moments = [pair for optimizer, named in owned for pair in _moments(named, optimizer) if counts[pair[0]] < 2]
    return Kept(weights, moments)


def _named(optimizer: Any) -> list[tuple[str, Any]]:
    owned = [one for group in optimizer.param_groups for one in group["params"]][:PARAMETERS]
    return list(zip(naming.parameters(owned, optimizer), owned, strict=True))


def _moments(named: list[tuple[str, Any]], optimizer: Any) -> list[tuple[str, Any]]:
    """For each parameter the first of what the optimizer keeps that is as large as it."""
    return [(name, optimizer.state[one][key]) for name, one in named if (key := _kept(one, optimizer)) is not None]


def _kept(parameter: Any, optimizer: Any) -> str | None:
    kept = optimizer.state.get(parameter) or {}
    return next((key for key, value in kept.items() if getattr(value, "shape", None) == parameter.shape), None)


def _holders(marks: dict[str, Mark]) -> dict[Mark, str]:
    """Whose each mark is; without those that may be anyone's, such as zeros."""
    return {mark: name for name, mark in marks.items() if len(set(mark[1:])) > 1}


def _moved(expected: Kept, now: Kept) -> list[str]:
    """Parameters that hold what they or others held, while their moments are those of yet another one."""
    weights, moments = _holders(expected.weights), _holders(expected.moments)
    pairs = {name: (weights.get(now.weights.get(name, ())), moments.get(mark)) for name, mark in now.moments.items()}
    return [f"{name}<{kept}" for name, (held, kept) in pairs.items() if held and kept and held != kept]
