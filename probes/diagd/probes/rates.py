"""Learning rates, and what schedulers do with them."""

import sys
import weakref
from collections.abc import Callable
from typing import Any

from diagd.probes import sites
from diagd.probes.compiling import around_eager
from diagd.probes.guard import Patches, Probe
from diagd.probes.signals import SIGNALS

EVERY = 16  # steps after which a rate that has not changed is told again
MAX_GROUPS = 16  # of all optimizers
SCHEDULED_EVERY = 64  # steps after which it is told again how far schedulers have been stepped
MOVED = 8  # times that a scheduler was stepped: whose it is then tells something
# What a scheduler is made with that says how far it goes.
_SPANS = ("step_size", "milestones", "gamma", "T_max", "total_iters", "total_steps", "T_0", "T_mult", "eta_min")

_patches = Patches()


class Rates:
    """Of all optimizers of this process."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._first: dict[int, tuple[Any, int]] = {}  # optimizer's id -> reference, number of its first group
        self._groups = 0
        self._scheduled_at = 0

    def before_step(self, optimizer: Any, step: int) -> None:
        """An optimizer is about to step with these rates."""
        groups = optimizer.param_groups
        first = self._number(optimizer, len(groups))
        for number, group in enumerate(groups, first):
            rate = group.get("lr")
            if number >= MAX_GROUPS or rate is None or not group["params"]:
                continue
            if not isinstance(rate, (float, int)):
                if getattr(rate, "device", None) is None or rate.device.type != "cpu":
                    continue  # reading it would wait for the device
                rate = float(rate)
            name = f"lr/{number}"
            if rate != self._last.get(name) or step % EVERY == 0:
                self._last[name] = rate
                SIGNALS.record(name, rate, step)
        if SCHEDULERS.made and not 0 <= step - self._scheduled_at < SCHEDULED_EVERY:
            self._scheduled_at = step
            SIGNALS.record("lr/scheduled", SCHEDULERS.stepped(), step)
            SIGNALS.record("lr/orphaned", float(SCHEDULERS.are_orphaned(self._has_stepped)), step)
            initial = max(
                (_as_float(group.get(name)) for group in groups for name in ("initial_lr", "max_lr")), default=0.0
            )
            if initial:
                SIGNALS.record("lr/initial", initial, step)

    def _has_stepped(self, optimizer: Any) -> bool:
        known = self._first.get(id(optimizer))
        return known is not None and known[0]() is optimizer

    def _number(self, optimizer: Any, groups: int) -> int:
        known = self._first.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            known = self._first[id(optimizer)] = weakref.ref(optimizer), self._groups
            for number in range(self._groups, min(self._groups + groups, MAX_GROUPS)):
                SIGNALS.fact(f"lr/{number}/optimizer", type(optimizer).__name__)
                SIGNALS.fact(f"lr/{number}/group", str(number - self._groups))
            self._groups += groups
        return known[1]


def _as_float(value: Any) -> float:
    return float(value) if isinstance(value, (float, int)) else 0.0


class _Schedulers:
    """Those that were made, each with where it stood then."""

    def __init__(self) -> None:
        self.made: list[tuple[weakref.ref[Any], int]] = []

    def add(self, scheduler: Any) -> None:
        position = scheduler.__dict__.get("last_epoch")
        if type(position) is int and len(self.made) < MAX_GROUPS:
            self.made.append((weakref.ref(scheduler), position))

    def stepped(self) -> int:
        """How far the one that has gone furthest has gone."""
        return max((times for _, times in self._gone()), default=0)

    def are_orphaned(self, has_stepped: Callable[[Any], bool]) -> bool:
        """Whether some are stepped, and all those for optimizers that never step."""
        moving = [scheduler.__dict__.get("optimizer") for scheduler, times in self._gone() if times >= MOVED]
        return bool(moving) and not any(one is None or has_stepped(one) for one in moving)

    def _gone(self) -> list[tuple[Any, int]]:
        there = [(scheduler, position) for ref, position in self.made if (scheduler := ref()) is not None]
        now = [(scheduler, scheduler.__dict__.get("last_epoch"), position) for scheduler, position in there]
        return [(scheduler, last - position) for scheduler, last, position in now if type(last) is int]


SCHEDULERS = _Schedulers()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.lr_scheduler is there."""
    torch = sys.modules["torch"]
    base = getattr(module, "LRScheduler", None) or module._LRScheduler
    _patches.replace(base, "__init__", lambda f: around_eager(torch, probe, f, _making, _made, _ignore))


def remove() -> None:
    """Put torch's own method back."""
    _patches.undo()


def _ignore(*_: Any) -> None:
    """There is nothing to do."""


def _making(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


def _made(scheduler: Any, result: Any) -> None:
    SCHEDULERS.add(scheduler)
    spans = {name: scheduler.__dict__[name] for name in _SPANS if name in scheduler.__dict__}
    said = " ".join(f"{name}={sorted(value) if hasattr(value, 'elements') else value}" for name, value in spans.items())
    SIGNALS.fact("lr/scheduler", f"{type(scheduler).__name__} {said}".strip()[:300])
    if site := sites.text_from(sys._getframe()):
        SIGNALS.fact("lr/scheduler/site", site)
