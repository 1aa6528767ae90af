"""Heads of one trunk of which one outgrows another: its gradients rise until they alone decide what the trunk learns.

So it goes where the terms' weights are learned, or scheduled, and one of them has no limit. That another head's fall
behind is no such thing: a term that is learned has none left.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.numerics.imbalance import APART, LEAST_SAMPLES, apart, heads_of
from diagd.daemon.detectors.numerics.weights import SOME, Weight, weights
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, Floats, Ints, curve_of, figure
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.state.signals import SignalBook

RECENT = LEAST_SAMPLES  # samples, at all of which they are so far apart
FIRST = 3  # one of so many parts of the samples before: it shows their level at first
GROWN = 10.0  # times
LEFT = 0.1  # of its own level at first: a head with less may have learned what there is
# Of a distribution the mean's gradients grow as its spread shrinks, and that is how both are learned.
_SPREADS = ("var", "std", "sigma", "scale", "spread", "precision")

Pair = tuple[Weight, Weight, int]  # the one that has grown, the other one, and the step since when


def outgrown(scene: Scene) -> Iterator[Finding]:
    """One finding for each model."""
    ranks = scene.state.signals.ranks("grad_norm")
    found: dict[str, dict[int, Pair]] = {}
    for rank in ranks[:SOME]:
        for model, heads in heads_of(weights(scene.state, rank)).items():
            last = [head[-1] for head in heads]
            if apart(heads) is None and (pair := _pair(scene.state.signals, rank, last)) is not None:
                found.setdefault(model, {})[rank] = pair
    run = Run(scene)
    if run.reinforced or run.adversarial:
        return  # a value is as large as the returns; parts learn by turns
    for model, pairs in found.items():
        yield _finding(scene, model, pairs, ranks if len(pairs) == len(ranks[:SOME]) else tuple(sorted(pairs)))


def _pair(signals: SignalBook, rank: int, heads: list[Weight]) -> Pair | None:
    known = [one for one in heads if len(one.gradient.values) >= 2 * RECENT]
    if len(known) < 2 or any(word in one.place.lower() for one in known for word in _SPREADS):
        return None
    steps = known[0].gradient.steps
    for one in known[1:]:
        steps = np.intersect1d(steps, one.gradient.steps)
    if len(steps) < 2 * RECENT:
        return None
    cut = _cut(signals, rank, steps)
    levels = {one.name: one.gradient.at(steps).values * cut for one in known}
    large = max(known, key=lambda one: float(np.median(levels[one.name][-RECENT:])))
    behind = [one for one in known if _is_outgrown(levels[large.name], levels[one.name])]
    if not behind or not _has_grown(levels[large.name]):
        return None
    small = min(behind, key=lambda one: float(np.median(levels[one.name][-RECENT:])))
    near = np.flatnonzero(levels[large.name] <= APART * levels[small.name])
    return large, small, int(steps[int(near[-1]) + 1 if len(near) else 0])


def _cut(signals: SignalBook, rank: int, steps: Ints) -> Floats:
    """By how much clipping has divided all gradients at these steps, as far as is known."""
    norms, limits = (curve_of(signals.series(rank, name)) for name in ("clip_norm", "clip_norm/limit"))
    if not len(norms.values) or not len(limits.values):
        return np.ones(len(steps))
    return np.maximum(np.interp(steps, norms.steps, norms.values) / max(float(limits.values[-1]), 1e-30), 1.0)


def _has_grown(values: Floats) -> bool:
    return float(np.median(values[-RECENT:])) >= GROWN * _at_first(values)


def _is_outgrown(large: Floats, small: Floats) -> bool:
    """Whether it has something to learn, and is far behind."""
    far = bool((large[-RECENT:] > APART * small[-RECENT:]).all())
    return far and float(np.median(small[-RECENT:])) >= LEFT * _at_first(small) > 0


def _at_first(values: Floats) -> float:
    return float(np.median(values[: max((len(values) - RECENT) // FIRST, FIRST)]))


def _finding(scene: Scene, model: str, pairs: dict[int, Pair], ranks: tuple[int, ...]) -> Finding:
    rank, (large, small, step) = next(iter(pairs.items()))
    clipped = scene.state.signals.series(rank, "clip_norm") is not None
    text = (
        f"the gradients of {model}'s head {large.place} have grown until, since step {step}, they are more than"
        f" {APART:.0f} times those of {small.place}: what the heads share learns for {large.place} alone"
    )
    text += ", and one clip for all cuts the others down with it" if clipped else ""
    told = [seen(_told(one.gradient, one.name), rank, step) for one in (large, small)]
    why = cause("scale", "one term of the loss, or its weight, has grown without a limit: so does a weight that is"
                " learned as its term goes to 0", 0.7, *told)  # fmt: skip
    return finding("numerics.gradient_imbalance", Severity.WARNING, ranks, words.shortened(text), why,
                   names=(large.name, small.name, "grad_norm"), step=step, key=f"heads {model}")  # fmt: skip


def _told(curve: Curve, name: str) -> str:
    first, now = figure(float(np.median(curve.values[:RECENT]))), figure(float(np.median(curve.values[-RECENT:])))
    return f"norm of the gradient of {name}, as the optimizer is given it: {first} at first, {now} now"
