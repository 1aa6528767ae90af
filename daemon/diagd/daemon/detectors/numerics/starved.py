"""A branch of a model that its gradients leave where it began, while another of the same model learns.

Parts of a model that have no input in common are each trained by a term of the loss of their own. Where these terms
have units that are far apart, and one rate and one limit on the norm hold for all, the smaller one's part hardly moves
(Wang, Teng and Perdikaris 2021, SIAM J. Sci. Comput. 43, A3055, on physics-informed networks). Optimizers that scale
each parameter's step by its own gradients make up for it: what counts is how far the weights go in a step.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.numerics.imbalance import heads_of
from diagd.daemon.detectors.numerics.weights import SOME, Weight, is_besides, is_expert, is_router, weights
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import figure
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

APART = 1e3  # of the gradients' norms; heads of a healthy model are a hundred apart now and then
STILL = 1e-5  # of its own norm in a step: in 10,000 steps it goes a tenth of the way
MOVES = 100.0  # times as far goes the other
LEAST_SAMPLES, LEAST_STEP = 10, 40
MOST = 0.9  # of the samples


def starved(scene: Scene) -> Iterator[Finding]:
    """One finding for each model."""
    run = Run(scene)
    if run.adversarial or run.reinforced or run.is_loaded:
        return  # parts learn by turns there, or have learnt before
    found: dict[str, dict[int, tuple[Weight, Weight]]] = {}
    for rank in scene.state.signals.ranks("grad_norm")[:SOME]:
        for model, branches in _branches(weights(scene.state, rank)).items():
            pair = _apart(branches)
            if pair is not None:
                found.setdefault(model, {})[rank] = pair
    for model, by_rank in found.items():
        yield _finding(model, by_rank)


def _branches(all_: list[Weight]) -> dict[str, list[Weight]]:
    """By model, the last matrix of each of its children; not of heads of one trunk, which have a rule of their own."""
    heads = heads_of(all_)
    models: dict[str, dict[str, Weight]] = {}
    for one in all_:
        if one.is_matrix and not (is_besides(one.name) or is_expert(one.name) or is_router(one.name)):
            models.setdefault(one.model, {})[one.module] = one
    return {
        model: list(children.values()) for model, children in models.items() if len(children) > 1 and model not in heads
    }


def _apart(branches: list[Weight]) -> tuple[Weight, Weight] | None:
    """The one that learns most and the one that stands still; None where all move."""
    known = [one for one in branches if len(one.gradient.values) >= LEAST_SAMPLES]
    if len(known) < 2 or known[0].gradient.last_step < LEAST_STEP:
        return None
    paces = {one.name: _pace(one) for one in known}
    slow, quick = min(known, key=lambda w: paces[w.name]), max(known, key=lambda w: paces[w.name])
    if not 0 < paces[slow.name] < min(STILL, paces[quick.name] / MOVES):
        return None
    steps = np.intersect1d(quick.gradient.steps, slow.gradient.steps)
    above, below = quick.gradient.at(steps).values, slow.gradient.at(steps).values
    if len(steps) < LEAST_SAMPLES or len(above) != len(below) or not (below > 0).all():
        return None
    return (quick, slow) if float((above > APART * below).mean()) >= MOST else None


def _pace(one: Weight) -> float:
    """How far a step takes it, in parts of its own norm: the middle of all steps that are known."""
    if not (len(one.update.values) and len(one.held.values)):
        return 0.0
    return float(np.median(one.update.values)) / max(float(np.median(one.held.values)), 1e-30)


def _finding(model: str, by_rank: dict[int, tuple[Weight, Weight]]) -> Finding:
    rank, (quick, slow) = next(iter(by_rank.items()))
    paces = {one.name: figure(_pace(one)) for one in (quick, slow)}
    text = (
        f"{slow.module} of {model} hardly moves: a step changes it by {paces[slow.name]} of its norm,"
        f" and {quick.module} by {paces[quick.name]}; their gradients are orders of magnitude apart"
    )
    told = [seen(f"norm of the gradient of {w.name}: {figure(float(np.median(w.gradient.values)))} in the middle", rank)
            for w in (quick, slow)]  # fmt: skip
    why = cause("scale", "the terms of the loss have other units or weights, and one rate or one limit on the norm of"
                " the gradients holds for all", 0.7, *told, basis=Basis.RESEARCH)  # fmt: skip
    step = int(slow.gradient.steps[LEAST_SAMPLES - 1])
    return finding("numerics.gradient_imbalance", Severity.WARNING, tuple(by_rank), words.shortened(text), why,
                   names=(slow.name, quick.name), step=step, key=f"branches {model}")  # fmt: skip
