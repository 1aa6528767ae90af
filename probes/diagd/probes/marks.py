"""By which a parameter is known again: a few of its values, as they were when the run wrote a checkpoint.

Looked at where a file is written, and once more in the first step after it was read, before the optimizer changes
anything. What came back otherwise, or as what another parameter was, is told by name:

    checkpoint/changed    fact: "3 of 12|NAME<OTHER,NAME", OTHER where it now holds what that one held
"""

import sys
import time
from typing import Any

from diagd.probes import later, naming
from diagd.probes.box.layout import Live
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

FILES = 64  # the newest ones that were written; those of one step share what is kept
PARAMETERS = 2048
VALUES = 4  # at each end
NAMES = 6  # that are told
REST = 200  # of what a look takes, before the next: who writes at each step is looked at now and then

Mark = tuple[float, ...]


class _Marks:
    """This process's."""

    def __init__(self) -> None:
        self.written: dict[str, dict[str, Mark]] = {}  # by path and name
        self.expected: dict[str, Mark] = {}  # those of the file that was read since the last step
        self._newest: tuple[int, dict[str, Mark]] = (-1, {})  # step, marks: the files of one step share them
        self._next_ns = 0

    def take(self, path: str, step: int) -> None:
        """The run has written tensors into this file."""
        self.written.pop(path, None)
        if step != self._newest[0]:
            began = time.monotonic_ns()
            if began < self._next_ns:
                return
            self._newest = step, _marked([(one.name, tensor) for one, tensor in NAMED.held()])
            self._count(began)
        self.written[path] = self._newest[1]
        while len(self.written) > FILES:
            self.written.pop(next(iter(self.written)))

    def _count(self, began: int) -> None:
        took = time.monotonic_ns() - began
        self._next_ns = began + REST * took
        if STATE.live is not None:
            STATE.live[int(Live.OVERHEAD_NS)] += took

    def expect(self, path: str) -> None:
        """It has read this file."""
        self.expected = self.written.get(path) or self.expected

    def compare(self, optimizer: Any, step: int) -> None:
        """Before the first step after that: what has not come back."""
        expected, self.expected = self.expected, {}
        owned = [one for group in optimizer.param_groups for one in group["params"]][:PARAMETERS]
        names = naming.parameters(owned, optimizer)
        now = _marked(list(zip(names, owned, strict=True)))
        known = {name: mark for name, mark in now.items() if name in expected}
        changed = [name for name, mark in known.items() if mark != expected[name]]
        others = {mark: name for name, mark in expected.items() if len(set(mark)) > 1}  # zeros are anyone's
        told = [f"{name}<{others[now[name]]}" if now[name] in others else name for name in changed]
        told.sort(key=lambda text: "<" not in text)
        if changed:
            SIGNALS.fact("checkpoint/changed", f"{len(changed)} of {len(known)}|{','.join(told[:NAMES])}"[:900], step)


KNOWN = _Marks()


def _marked(named: list[tuple[str, Any]]) -> dict[str, Mark]:
    torch = sys.modules["torch"]
    if not later.possible(torch):  # a graph is being captured, or a mode of the script's would see it
        return {}
    with later.unseen(torch):
        return {name: mark for name, tensor in named[:PARAMETERS] if (mark := of(tensor)) is not None}


def of(tensor: Any) -> Mark | None:
    """Some of its values; None where they are not to be had at once."""
    held = later.plain(tensor)  # not one whose memory a wrapper has taken away
    if held is None or not held.is_contiguous():
        return None
    flat = held.detach().view(-1)
    return (float(held.numel()), *flat[:VALUES].tolist(), *flat[-VALUES:].tolist())
