"""What had grown by orders of magnitude, step by step, before it was no longer finite: that is where to look."""

import numpy as np

from diagd.daemon.detectors.finding import Cause
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import figure
from diagd.daemon.detectors.training.saying import cause, seen

TIMES = 1e4  # over the lowest of the samples before; a bad batch gives one jump, what runs away climbs in several
CLIMBS = 2  # samples in a row, the last finite one included, each so many times the one before:
CLIMB = 3.0
LATELY = 16  # samples in which the climb lies: steps too large run away in fewer, a slow drift is another fault
SERIES = {"loss": "the loss", "grad_norm": "the gradients' norm"}


def ran_away(scene: Scene, rank: int, step: int) -> Cause | None:
    """The cause of values that are not finite from `step` on, where the loss or the gradients climbed up to it."""
    told = [
        seen(f"{text} climbs from {figure(low)} at step {since} to {figure(high)} at step {last}", rank, last)
        for name, text in SERIES.items()
        if (found := _climb(scene, rank, name, step)) is not None
        for low, since, high, last in [found]
    ]
    if not told:
        return None
    text = "it grew by orders of magnitude in the steps before, until it overflowed: the updates are too large"
    return cause("runaway", text, 0.8, *told)


def _climb(scene: Scene, rank: int, name: str, step: int) -> tuple[float, int, float, int] | None:
    series = scene.state.signals.series(rank, name)
    if series is None:
        return None
    before = (series.steps <= step) & np.isfinite(series.values)
    values, steps = np.abs(series.values[before][-LATELY:]), series.steps[before][-LATELY:]
    if len(values) <= CLIMBS or not (values[-CLIMBS:] >= CLIMB * values[-CLIMBS - 1 : -1]).all():
        return None
    low = int(values.argmin())
    if values[-1] < TIMES * max(values[low], 1e-3):
        return None
    return float(values[low]), int(steps[low]), float(values[-1]), int(steps[-1])
