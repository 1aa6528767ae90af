"""Who had the first NaN in a backward pass: a hook on one small parameter near the input keeps a sum of its gradient.

DDP adds the ranks' gradients up right after they are computed, and from the next step on all have the NaN of one. A NaN
that a backward pass makes goes on to the parameters near the input, so one of these tells of each pass, before its
reduction. The sums stay where they were computed, and are read once there is a NaN: then a wait no longer matters.
"""

import math
import sys
from collections import deque
from typing import Any

from diagd.probes import compiling, later, own_gradients
from diagd.probes.box.layout import Live
from diagd.probes.guard import Probe
from diagd.probes.named import NAMED
from diagd.probes.own_gradients import SIGNAL
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

KEPT = 48  # passes
NEAR = 6  # parameters of a model, from its input on, of which the smallest is taken
_STEP = int(Live.STEP)


class Sentinel:
    """This process's."""

    def __init__(self) -> None:
        self.probe: Probe | None = None
        self.name = ""
        self.told = False
        self._handle: Any = None
        self._torch: Any = None
        self._sums: deque[tuple[int, Any]] = deque(maxlen=KEPT)

    def place(self) -> None:
        """Hang it up, if there are other ranks, and nothing that minds."""
        distributed = sys.modules.get("torch.distributed")
        if self._handle is not None or self.told or distributed is None or not distributed.is_initialized():
            return
        if distributed.get_world_size() < 2 or compiling.in_use():
            return
        torch = self._torch = sys.modules["torch"]
        plain = [
            (one.name, p)
            for one, p in NAMED.held()
            if type(p) is torch.nn.Parameter and p.is_leaf and p.requires_grad and one.owned
        ]
        if plain:
            self.name, parameter = min(plain[:NEAR], key=lambda one: int(one[1].numel()))
            self._handle = parameter.register_hook(own_gradients.hook(self._hook))

    def take_down(self) -> None:
        """Remove the hook."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._sums.clear()

    def _hook(self, gradient: Any) -> None:
        probe = self.probe
        if probe is not None and probe.on and STATE.recording:
            probe.run(self._keep, gradient)

    def _keep(self, gradient: Any) -> None:
        torch = self._torch
        if type(gradient) is torch.Tensor and gradient.layout is torch.strided and later.possible(torch):
            with torch._C.DisableTorchFunction():  # autograd sees nothing of what is detached
                self._sums.append((int(STATE.live[_STEP]) + 1, gradient.detach().sum()))

    def tell(self) -> None:
        """There is a NaN: say of the last passes whether this rank's own gradient was finite."""
        if self.told or not self._sums:
            return
        self.told = True
        torch, kept = sys.modules["torch"], list(self._sums)
        self.take_down()
        with later.unseen(torch):
            later.read(torch.stack([one.float() for _, one in kept]), lambda sums: _told(self.name, kept, sums))


def _told(name: str, kept: list[tuple[int, Any]], sums: list[float]) -> None:
    for (number, _), value in zip(kept, sums, strict=False):
        step = max(number, 1)
        SIGNALS.record(SIGNAL, float(not math.isfinite(value)), step)
        if not math.isfinite(value):
            SIGNALS.fact(SIGNAL, name, step)
            break  # all that comes after it may be the others'


SENTINEL = Sentinel()
