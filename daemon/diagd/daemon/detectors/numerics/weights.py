"""The parameters of one rank with the norms that are told of them, in the order of their modules."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from diagd.daemon.detectors.training.curves import Curve, curve_of
from diagd.daemon.state.job import JobState
from diagd.daemon.state.signals import SignalBook
from diagd.daemon.state.tensors import TensorInfo

GRADIENT, UPDATE, HELD = "grad_norm/", "update_norm/", "param_norm/"
BESIDES = ("lora", "adapter", "prompt", "prefix", "ia3")  # what is trained beside frozen weights is called so
ROUTERS = frozenset({"router", "gate", "gating", "routing", "wg"})  # modules, as layers with experts call theirs
EXPERTS = ("expert", "moe")  # some may get no token for long


SOME = 4  # ranks whose parameters are looked at: replicas show alike, and there may be thousands of each


@dataclass
class Weight:
    """One parameter of one rank; its norms are taken from the state when they are asked for."""

    name: str
    info: TensorInfo | None
    signals: SignalBook
    rank: int

    @cached_property
    def gradient(self) -> Curve:
        """The norm of its gradient."""
        return curve_of(self.signals.series(self.rank, GRADIENT + self.name))

    @cached_property
    def update(self) -> Curve:
        """The norm of what a step changes of it."""
        return curve_of(self.signals.series(self.rank, UPDATE + self.name))

    @cached_property
    def held(self) -> Curve:
        """Its own norm."""
        return curve_of(self.signals.series(self.rank, HELD + self.name))

    def newest(self, prefix: str) -> float:
        """The newest of one of its norms, without looking at the others; NaN where there is none."""
        series = self.signals.series(self.rank, prefix + self.name)
        return float(series.values[-1]) if series is not None and len(series) else math.nan

    @property
    def is_matrix(self) -> bool:
        """A weight proper: neither a bias nor a norm's scale. FSDP1's flat parameters are mostly of such ones."""
        if self.name.endswith("_flat_param"):
            return True
        return len(self.info.shape) > 1 if self.info is not None else self.name.endswith("weight")

    @property
    def model(self) -> str:
        """The title of its model."""
        return self.name.partition(".")[0]

    @property
    def module(self) -> str:
        """The child of its model that it is in."""
        return self.name.split(".")[1] if self.name.count(".") else self.name

    @property
    def place(self) -> str:
        """Where it is in its model, without the name that it has there."""
        return self.name.partition(".")[2].rpartition(".")[0] or self.name

    @property
    def fan_in(self) -> int:
        """Elements that one output is made of."""
        return int(np.prod(self.info.shape[1:])) if self.info is not None else 0


def is_besides(name: str) -> bool:
    """Whether it is trained beside frozen weights, as adapters are; these begin at zero on purpose."""
    return any(word in name.lower() for word in BESIDES)


def is_expert(name: str) -> bool:
    """Whether it is one of several of which a router chooses."""
    return any(word in name.lower() for word in EXPERTS)


def is_router(name: str) -> bool:
    """Whether it chooses of experts."""
    parts = name.lower().split(".")
    inside = any(part.startswith("expert") for part in parts)
    return not inside and any(part in ROUTERS or part.startswith("router") for part in parts)


def weights(state: JobState, rank: int) -> list[Weight]:
    """All that gradients' norms are told of."""
    signals = state.signals
    names = [name.removeprefix(GRADIENT) for name in signals.names(rank) if name.startswith(GRADIENT)]
    infos = {e.name: e.infos[rank] for e in state.tensors.entries if e.kind == "parameter" and rank in e.infos}
    return [Weight(name, infos.get(name), signals, rank) for name in names]
