"""Trainings as their scalars show them: made from seeds, so that a test is the same at each run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.detectors.scalars import signals
from tests.detectors.states import Job, job

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.detectors.training.rules import TRAINING

Floats = NDArray[np.floating[Any]]
Values = Sequence[float] | Floats
Scalars = dict[str, Values]


def rng(seed: int = 0) -> np.random.Generator:
    """The same numbers at each run."""
    return np.random.default_rng(seed)


def falling(count: int, begin: float = 3.0, floor: float = 0.3, over: float = 40.0, noise: float = 0.05,
            seed: int = 0) -> Floats:  # fmt: skip
    """A loss that falls to a floor, with noise in proportion to it."""
    level = floor + (begin - floor) * np.exp(-np.arange(count) / over)
    return level * np.exp(noise * rng(seed).standard_normal(count))


def around(level: float, noise: float, count: int, seed: int = 0) -> Floats:
    """A value that stays where it is."""
    return level + noise * rng(seed).standard_normal(count)


class Learning:
    """A job whose ranks tell these scalars, one at each step."""

    def __init__(self, series: Mapping[str, Values], world: int = 1) -> None:
        self.job: Job = job(world)
        longest = max((len(values) for values in series.values()), default=0)
        known = {"grad_norm": np.full(longest, 0.5), "lr/0": np.full(longest, 1e-3), **series}
        for rank in range(world):
            self.rank(rank, known)

    def rank(self, rank: int, series: Mapping[str, Values]) -> "Learning":
        """What one rank tells beside or in place of what all do."""
        for name in series:
            self.job.state.signals._series.get(rank, {}).pop(name, None)
            signals(self.job.state, rank, name, range(1, len(series[name]) + 1), [float(v) for v in series[name]])
        return self

    def find(self) -> list[Finding]:
        """What the rules about learning say."""
        scene = scene_of(self.job.state)
        return [finding for rule in TRAINING for finding in rule(scene)]

    def kinds(self) -> list[tuple[str, str]]:
        """Kind and severity of each."""
        return [(finding.kind.removeprefix("training."), finding.severity.value) for finding in self.find()]


def logged(**series: Values) -> Scalars:
    """As a script's own metrics."""
    return {f"logged/{name}": values for name, values in series.items()}
