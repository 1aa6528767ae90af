"""Models that train against each other and no longer get a gradient: one has won, and the other learns nothing more.

A loss of which nothing is left means that the task is learned; in a game it means that one side cannot lose. With
log(1 - D(G(z))) the generator's gradient goes to zero together with the discriminator's loss (Goodfellow et al. 2014,
section 3; Arjovsky and Bottou 2017, theorem 2.4).
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.numerics.weights import SOME, Weight, weights
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import figure
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

FADED = 1e-4  # of the largest gradient that it had,
ALL_FADED = 1e-3  # and where that is so of all models: a game that goes on gives some side a gradient
NEWEST, LEAST, SEEN = 4, 12, 2  # samples


def saturated(scene: Scene) -> Iterator[Finding]:
    """One finding for the models whose gradients have faded, on the first ranks."""
    if not Run(scene).adversarial:
        return
    faded: dict[int, dict[str, list[Weight]]] = {}
    for rank in scene.state.signals.ranks("grad_norm")[:SOME]:
        by_model: dict[str, list[Weight]] = {}
        for one in weights(scene.state, rank):
            if one.is_matrix:
                by_model.setdefault(one.model, []).append(one)
        if len(by_model) > 1 and (lost := _lost(by_model)):
            faded[rank] = lost
    if faded:
        yield _finding(scene, faded)


def _lost(by_model: dict[str, list[Weight]]) -> dict[str, list[Weight]]:
    lost = {model: all_ for model, all_ in by_model.items() if all(_has_faded(one, FADED) for one in all_)}
    if not lost and all(_has_faded(one, ALL_FADED, _lately(one)) for all_ in by_model.values() for one in all_):
        return by_model
    return lost


def _lately(one: Weight) -> int:
    """How many of its samples are of the later half of the run: some are taken seldom."""
    return int((one.gradient.steps > one.gradient.last_step / 2).sum()) if len(one.gradient.steps) else 0


def _has_faded(one: Weight, to: float, newest: int = NEWEST) -> bool:
    values = one.gradient.values
    enough = len(values) >= LEAST and newest >= SEEN
    return enough and bool(values[-newest:].max() < to * values[: LEAST // 2].max())


def _finding(scene: Scene, faded: dict[int, dict[str, list[Weight]]]) -> Finding:
    rank, ranks = min(faded), scene.state.signals.ranks("grad_norm")
    all_ = [one for matrices in faded[rank].values() for one in matrices]
    worst = max(all_, key=lambda one: float(one.gradient.values.max()))
    level = float(worst.gradient.values[-1])
    which, most = " and ".join(sorted(faded[rank])), figure(float(worst.gradient.values.max()))
    text = (
        f"of the models that {words.ranks_text(ranks)} train against each other, {which} get no gradient any more:"
        f" {figure(level)} at {worst.name}, which had {most}"
    )
    told = [
        seen(f"norm of the gradient of {one.name}: {figure(float(one.gradient.values.max()))} at most,"
             f" {figure(float(one.gradient.values[-1]))} now", rank, one.gradient.last_step)
        for one in all_[:6]
    ]  # fmt: skip
    why = cause("saturated", "one side has won: where a discriminator is sure of all it sees, a loss such as"
                " log(1 - D(G(z))) is flat", 0.8, *told, basis=Basis.RESEARCH)  # fmt: skip
    since = np.flatnonzero(worst.gradient.values >= ALL_FADED * worst.gradient.values.max())
    step = int(worst.gradient.steps[min(int(since[-1]) + 1, len(worst.gradient.steps) - 1)])
    names = tuple(one.name for one in all_[:20])
    return finding("numerics.gradient_vanishing", Severity.WARNING, ranks, text, why, names=names, step=step,
                   key="saturated game")  # fmt: skip
