"""Whose gradients are not finite: looked at once clipping has returned such a norm, before the ranks' are added up.

A hook on a parameter is given what this rank's own backward pass has computed; DDP reduces after it. The hooks are
there for some passes only, and nowhere where torch.compile is, whose guards would see them.
"""

import math
import sys
from collections.abc import Callable
from typing import Any

from diagd.probes import compiling, later
from diagd.probes.guard import Probe
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS

TROUBLE = 2  # norms that are not finite: one alone is everyday life of a gradient scaler
PASSES = 24  # clippings for which the hooks stay at most
ENOUGH = 3  # of them with such a gradient
MOST = 512  # parameters
SHOWN = 8  # names
SIGNAL = "gradients/own_nonfinite"


def hook(function: Callable[[Any], None]) -> Callable[[Any], None]:
    """The function, marked so that torch does not warn that it is lost when the parameter is sent to a process."""

    def call(gradient: Any) -> None:
        function(gradient)

    call.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return call


class Watch:
    """One process's hooks."""

    def __init__(self) -> None:
        self.probe: Probe | None = None  # whose wall the hooks stand behind
        self.trouble = 0
        self.over = False
        self._handles: list[Any] = []
        self._norms: dict[str, Any] = {}
        self._left = PASSES
        self._bad = 0

    def clipped(self, step: int) -> None:
        """The script has clipped: tell of the pass before that, or begin to watch those to come."""
        if self._handles:
            self._tell(step)
            self._left -= 1
            if not self._left or self._bad >= ENOUGH:
                self.end()
        elif self.trouble >= TROUBLE and not self.over:
            self.over = compiling.in_use()
            if not self.over:
                self._begin()

    def end(self) -> None:
        """Take the hooks away, for good."""
        self.over = True
        while self._handles:
            self._handles.pop().remove()
        self._norms.clear()

    def _begin(self) -> None:
        torch = sys.modules["torch"]
        leaves = [(one.name, p) for one, p in NAMED.held() if type(p) is torch.nn.Parameter]
        for name, parameter in leaves[:MOST]:
            if parameter.is_leaf and parameter.requires_grad:
                self._handles.append(parameter.register_hook(hook(self._taking(torch, name))))
        self.over = not self._handles

    def _taking(self, torch: Any, name: str) -> Callable[[Any], None]:
        def take(gradient: Any) -> None:
            if self.probe is not None and self.probe.on:
                self.probe.run(self._take, torch, name, gradient)

        return take

    def _take(self, torch: Any, name: str, gradient: Any) -> None:
        held = later.plain(gradient)
        if held is not None and later.possible(torch):
            with later.unseen(torch):
                norm = torch.linalg.vector_norm(held.detach().float())
                known = self._norms.get(name)
                self._norms[name] = norm if known is None else known + norm

    def _tell(self, step: int) -> None:
        torch = sys.modules["torch"]
        names, norms = list(self._norms), list(self._norms.values())
        self._norms = {}
        if not norms:
            return
        with later.unseen(torch):
            later.read(torch.stack(norms), lambda values: self._told(names, values, step))

    def _told(self, names: list[str], norms: list[float], step: int) -> None:
        bad = [name for name, norm in zip(names, norms, strict=False) if not math.isfinite(norm)]
        SIGNALS.record(SIGNAL, float(len(bad)), step)
        if bad:
            self._bad += 1
            SIGNALS.fact(SIGNAL, ", ".join(bad[:SHOWN]), step)


WATCH = Watch()
