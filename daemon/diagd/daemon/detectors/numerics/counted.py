"""What ranks have counted of their parameters, and one way of being dead that it shows."""

from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.scene import Scene

COUNTS = 2  # in a row that must show the same
LATER = 4  # and where a first stretch of training may well look so
SHARE = 0.25  # of the elements, or the parameters, that are meant to train: less may be a branch that is not used


class Dead(NamedTuple):
    """One way of being dead, as one rank shows it."""

    key: str
    severity: Severity
    text: str
    why: str
    names: tuple[str, ...]
    step: int
    confidence: float
    facts: tuple[str, ...]
    kind: str = "training.dead_parameters"


class Counts:
    """What one rank has counted, newest last."""

    def __init__(self, scene: Scene, rank: int) -> None:
        self.scene, self.rank = scene, rank

    def last(self, what: str, count: int = 1) -> list[float]:
        """The newest counts; fewer where there are not so many yet."""
        series = self.scene.state.signals.series(self.rank, f"parameters/{what}")
        return series.values[-count:].tolist() if series is not None else []

    def always(self, what: str, count: int = COUNTS) -> float:
        """The least of so many newest counts; 0 where there are fewer."""
        values = self.last(what, count)
        return min(values) if len(values) >= count else 0.0

    def names(self, what: str) -> tuple[str, ...]:
        """Some of those that were counted."""
        fact = self.scene.state.signals.fact(self.rank, f"parameters/{what}")
        return tuple(fact[1].split(", ")) if fact is not None else ()

    def since(self, what: str) -> int:
        """The step of the first count of the newest stretch above 0."""
        series = self.scene.state.signals.series(self.rank, f"parameters/{what}")
        if series is None or not len(series):
            return 0
        zero = np.flatnonzero(series.values == 0)
        return int(series.steps[min(zero[-1] + 1 if len(zero) else 0, len(series) - 1)])
