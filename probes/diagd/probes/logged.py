"""Metrics that the script logs itself, on their way to the rank's signals: `logged/<metric as logged>`.

One metric often arrives by several ways: a call of a logger, and a line that shows it rounded. The more exact way wins,
and what has come by it is taken from nowhere else again.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from diagd.probes.box.layout import Live
from diagd.probes.box.metric_steps import Steps
from diagd.probes.box.metric_text import STEP_NAMES, Value
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

TEXT, CALL = 1, 2  # ways, the more exact one later
MAX_NAMES = 256  # a script that prints more is not printing metrics
_STEP = int(Live.STEP)


class _Metric:
    """What is known of one."""

    __slots__ = ("decimals", "last", "signal", "way")

    def __init__(self, name: str, way: int) -> None:
        self.signal = f"logged/{name}"
        self.way = way
        self.decimals = -1
        self.last: tuple[int, float] | None = None


class Logged:
    """This process's."""

    def __init__(self) -> None:
        self.metrics: dict[str, _Metric] = {}
        self.steps: dict[tuple[int, str], Steps] = {}

    def put(self, values: Iterable[Value], step: int | None, way: int) -> None:
        """Take what was logged together.

        Args:
            step: As the script counts them; None: the training step that was completed last.
            way: TEXT or CALL.
        """
        place: int | None = None
        for value in values:
            if place is None:
                place = self._place(value.name, step, way)
            metric = self._metric(value.name, way)
            if metric is None or metric.last == (place, value.value):
                continue
            metric.last = place, value.value
            SIGNALS.record(metric.signal, value.value, place)
            if value.decimals is not None and value.decimals > metric.decimals:
                metric.decimals = value.decimals
                SIGNALS.fact(metric.signal, f"decimals {value.decimals}", place)

    def _place(self, name: str, step: int | None, way: int) -> int:
        if step is None:
            return max(int(STATE.live[_STEP]), 1) if STATE.live is not None else 1
        counter = self.steps.get((way, name))
        if counter is None:
            counter = self.steps[way, name] = Steps()
            if len(self.steps) > 2 * MAX_NAMES:
                self.steps.clear()
        return counter.place(step)

    def _metric(self, name: str, way: int) -> _Metric | None:
        metric = self.metrics.get(name)
        if metric is None:
            if len(self.metrics) >= MAX_NAMES:
                return None
            metric = self.metrics[name] = _Metric(name, way)
        elif way > metric.way:
            metric.way, metric.decimals = way, -1
            SIGNALS.fact(metric.signal, "exact")
        return metric if way >= metric.way else None


LOGGED = Logged()


def forget() -> None:
    """A forked child begins anew."""
    LOGGED.__init__()  # type: ignore[misc]


def from_call(metrics: Mapping[str, Any], step: Any, waited: bool) -> None:
    """What a logger was given.

    Args:
        metrics: By name, also with mappings inside.
        step: Its step, if it was given one.
        waited: The logger has read the values from their device, so reading them again waits for nothing.
    """
    values, own = [], number(step, False)
    for name, value in _flat(metrics, "", waited):
        if name.lower() in STEP_NAMES:
            own = value if own is None else own
        else:
            values.append(Value(name, value, None))
    LOGGED.put(values, int(own) if own is not None and abs(own) < 1e15 else None, CALL)


def _flat(metrics: Mapping[str, Any], prefix: str, waited: bool) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            if prefix.count("/") < 3:
                yield from _flat(value, f"{prefix}{name}/", waited)
        elif (found := number(value, waited)) is not None:
            yield f"{prefix}{name}", found


def number(value: Any, waited: bool) -> float | None:
    """A Python, numpy or torch scalar as a number; None for all else, and for what would have to be waited for."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return float(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        # Of a subclass, such as DTensor, reading may be a collective.
        if type(value) is not torch.Tensor or value.numel() != 1 or not (waited or value.device.type == "cpu"):
            return None
        return float(value.detach())
    if getattr(value, "shape", None) == () and hasattr(value, "dtype") and type(value).__module__ == "numpy":
        return float(value)
    return None
