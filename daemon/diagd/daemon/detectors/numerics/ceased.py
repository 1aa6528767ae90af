"""Layers whose gradients were there and have faded to exactly zero, while others of their model still learn.

A soft-max or a sigmoid that is made ever harder, or a gate that closes, ends so: in float32 a gradient is 0 once it is
below some 1e-45. One that is 0 from one step to the next was switched off: that is a loss's term, and may be meant.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.numerics.weights import GRADIENT, SOME, Weight, is_besides, is_expert, weights
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import figure
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

ZERO, ZERO_STEPS = 6, 40  # samples in a row, and steps that they span
BEFORE = 8  # samples with a gradient
FADED = 0.1  # of the largest that it had: the last one before it was 0


def ceased(scene: Scene) -> Iterator[Finding]:
    """One finding for each model."""
    run = Run(scene)
    if run.adversarial or run.reinforced:
        return  # parts of these learn by turns, or learn nothing from rewards that are all equal
    models: dict[str, dict[int, list[Weight]]] = {}
    for rank in scene.state.signals.ranks("grad_norm")[:SOME]:
        mine = [w for w in weights(scene.state, rank) if not is_besides(w.name)]
        dead = [
            w for w in mine if w.is_matrix and w.newest(GRADIENT) == 0.0 and not is_expert(w.name) and _has_faded(w)
        ]
        for model in {w.model for w in dead}:
            if any(w.newest(GRADIENT) > 0 for w in mine if w.model == model):
                models.setdefault(model, {})[rank] = [w for w in dead if w.model == model]
    for model, by_rank in models.items():
        yield _finding(model, by_rank)


def _has_faded(weight: Weight) -> bool:
    """Whether its gradient has come down to zero and stayed there."""
    values, steps = weight.gradient.values, weight.gradient.steps
    there = np.flatnonzero(values > 0)
    if len(there) < BEFORE or there[-1] + 1 != len(there):
        return False  # it comes and goes, as where parts learn by turns
    zeros = len(values) - len(there)
    if zeros < ZERO or steps[-1] - steps[there[-1]] < ZERO_STEPS:
        return False
    return bool(values[there[-1]] < FADED * values.max())


def _finding(model: str, by_rank: dict[int, list[Weight]]) -> Finding:
    rank, lost = next(iter(by_rank.items()))
    first = lost[0].gradient
    last = int(np.flatnonzero(first.values > 0)[-1])
    some = ", ".join(w.name for w in lost[:3])
    text = (
        f"the gradients of {len(lost)} layers of {model} have faded to exactly zero since step"
        f" {int(first.steps[last + 1])} ({some}), while the rest of it still learns"
    )
    told = [
        seen(f"norm of the gradient of {w.name}: {figure(float(w.gradient.values.max()))} at most, 0 at"
             f" {len(w.gradient.values) - last - 1} samples now", rank) for w in lost[:4]
    ]  # fmt: skip
    why = cause("faded", "what follows them passes on ever less until it is nothing: a temperature that is annealed"
                " without a floor, a saturated activation, a gate that closes", 0.7, *told)  # fmt: skip
    step = int(first.steps[min(last + ZERO, len(first.steps) - 1)])
    return finding("numerics.gradient_vanishing", Severity.WARNING, tuple(by_rank), text, why,
                   names=tuple(w.name for w in lost[:20]), step=step, key=f"faded {model}")  # fmt: skip
