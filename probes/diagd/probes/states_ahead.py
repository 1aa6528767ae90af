"""What optimizers will allocate in their first step: their state is made lazily, so that a job which fits through its
first backward pass may run out of memory in the step after it.

Signals (bytes, before an optimizer's first step): memory/state_ahead of host memory, memory/device_state_ahead.
"""

from collections.abc import Mapping
from typing import Any

from diagd.probes.signals import SIGNALS

HOST, DEVICE = "memory/state_ahead", "memory/device_state_ahead"
# Tensors of a parameter's own size that torch.optim's classes keep for it (torch/optim, 2.6 to 2.13); of those that are
# not here (Adagrad makes its state at once, Adafactor keeps rows and columns, LBFGS a history) nothing is foretold.
_KEPT = {
    "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adadelta": 2, "Rprop": 2, "ASGD": 1, "RMSprop": 1,
    "SGD": 0, "Muon": 1,
}  # fmt: skip
_MORE = {"amsgrad": ("Adam", "AdamW"), "momentum": ("SGD", "RMSprop"), "centered": ("RMSprop",)}


def foretell(optimizer: Any, step: int) -> None:
    """Record what the optimizer has yet to allocate, where that is anything.

    Args:
        step: The training step that is about to be made, from 1.
    """
    ahead = {HOST: 0, DEVICE: 0}
    for group in optimizer.param_groups:
        copies = kept(optimizer, group)
        for weight in group["params"] if copies else ():
            if weight.grad is None or optimizer.state.get(weight):
                continue
            held = getattr(weight, "_local_tensor", weight)  # of a DTensor this rank's part
            ahead[HOST if held.device.type == "cpu" else DEVICE] += copies * held.numel() * held.element_size()
    for name, size in ahead.items():
        if size:
            SIGNALS.record(name, float(size), step)


def kept(optimizer: Any, group: Mapping[str, Any]) -> int:
    """How many tensors of its size the optimizer keeps for each parameter of the group; 0 where that is not known."""
    name = next((cls.__name__ for cls in type(optimizer).__mro__ if cls.__name__ in _KEPT and _is_torchs(cls)), "")
    more = sum(bool(group.get(option)) for option, classes in _MORE.items() if name in classes)
    return _KEPT.get(name, 0) + more


def _is_torchs(cls: type) -> bool:
    return cls.__module__.startswith("torch.optim.")
