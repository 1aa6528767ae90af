"""What a step changes of parameters: their difference, of large ones over some of their elements."""

import math
import time
from typing import Any

from diagd.probes import later
from diagd.probes.budget import BUDGET
from diagd.probes.signals import SIGNALS

TURN = 8  # steps
WHOLE = 65_536  # elements of a parameter that is taken whole
SOME = 16_384  # of a larger one, evenly spread
AT_ONCE = 48  # parameters
_FIRST_NS = 20_000  # what one is thought to take before any was measured


class Updates:
    """Of one optimizer's parameters, in turns."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, Any, Any, float]] = []  # name, view, what it held, factor of the norms
        self.step = 0
        self._next = self._passes = 0
        self._each_ns = _FIRST_NS
        self._began_ns = 0

    def before_step(self, torch: Any, parameters: list[tuple[Any, str | None]], step: int, every: int) -> None:
        """Keep what some parameters hold, where it is time for that and there is room in the budget.

        Args:
            every: Norms are taken at one of so many steps: a power of two.
        """
        self.begun = []
        self._passes += 1
        due = step % TURN in (2, 6) if every <= TURN // 4 else self._passes % 2 == 0
        if step < 2 or not due or not parameters:
            return
        size = min(len(parameters), AT_ONCE)
        if not BUDGET.affords(size * self._each_ns):
            self._each_ns -= self._each_ns // 8  # a first time, or one on a busy machine, is no measure for good
            return
        began = time.thread_time_ns()
        order = parameters[self._next :] + parameters[: self._next]
        self._next = (self._next + size) % len(parameters)
        for parameter, name in order[:size]:
            view = self._view(torch, parameter) if name is not None and parameter.grad is not None else None
            if view is not None and name is not None:
                whole = later.plain(parameter).numel()
                self.begun.append((name, view, view.clone(), math.sqrt(whole / view.numel())))
        self.step, self._began_ns = step, time.thread_time_ns() - began

    def after_step(self, torch: Any) -> None:
        """Tell how far they have moved."""
        began = time.thread_time_ns()
        for kind in {(view.device, view.dtype) for _, view, _, _ in self.begun}:
            self._tell(torch, [one for one in self.begun if (one[1].device, one[1].dtype) == kind])
        took = time.thread_time_ns() - began + self._began_ns
        each = took // max(len(self.begun), 1)
        self._each_ns = min(each, 2 * self._each_ns)
        self.begun = []
        BUDGET.spent(took)

    def _tell(self, torch: Any, begun: list[tuple[str, Any, Any, float]]) -> None:
        befores = [before for _, _, before, _ in begun]
        moved = torch._foreach_sub([view for _, view, _, _ in begun], befores)
        half = befores[0].dtype == torch.float16
        if half:
            moved, befores = [m.float() for m in moved], [b.float() for b in befores]
        values = torch.stack([*torch._foreach_norm(moved), *torch._foreach_norm(befores)])
        names, factors, step = [one[0] for one in begun], [one[3] for one in begun], self.step

        def take(norms: list[float]) -> None:
            for name, factor, update, held in zip(names, factors, norms, norms[len(names) :], strict=False):
                SIGNALS.record("update_norm/" + name, update * factor, step)
                SIGNALS.record("param_norm/" + name, held * factor, step)

        later.read(values, take)

    def _view(self, torch: Any, parameter: Any) -> Any:
        """Its elements or some of them, as a view; None where they do not lie densely."""
        tensor = later.plain(parameter)
        if tensor is None:
            return None
        tensor = tensor.detach()
        count = tensor.numel()
        if count <= WHOLE:
            return tensor
        if not tensor.is_contiguous():
            return None
        # Odd, so that it is no multiple of a row's length and meets all columns in turn.
        stride = (count // SOME) | 1
        return tensor.as_strided((count // stride,), (stride,), tensor.storage_offset())
