"""Gradients that do not reach the first layers."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.numerics.weights import GRADIENT, SOME, Weight, is_besides, is_expert, weights
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import figure
from diagd.daemon.detectors.training.saying import cause, finding, seen

SMALL = 1e-8  # a common alarm for a gradient's norm; by itself it fires on biases before a normalization
RATIO = 1e-4  # of the largest in the same model
GATE = 10 * RATIO
STANDS = 1e-6  # of a weight's norm that a step changes: in a hundred thousand steps, a tenth of it
DECAY = 0.7  # of what steps change of a weight: what is no decay turns it, and changes its norm by far less
LEAST_SAMPLES, LEAST_STEP = 5, 12
LAYERS = 2  # in a row, from the first on
BELOW = 0.5  # of the run's samples must show it


def vanishing(scene: Scene) -> Iterator[Finding]:
    """Models whose first layers get no gradient to speak of."""
    models: dict[str, dict[int, list[Weight]]] = {}
    for rank in _told(scene):
        for name, layers in _by_model(weights(scene.state, rank)).items():
            lost = vanished(layers)
            if lost:
                models.setdefault(name, {})[rank] = lost
    for model, lost_by in models.items():
        yield _finding(scene, model, lost_by)


def _told(scene: Scene) -> tuple[int, ...]:
    """Replicas show alike: the first ranks will do."""
    return scene.state.signals.ranks("grad_norm")[:SOME]


def _by_model(all_: list[Weight]) -> dict[str, list[Weight]]:
    found: dict[str, list[Weight]] = {}
    for one in all_:
        if one.is_matrix and not is_besides(one.name) and not is_expert(one.name):
            found.setdefault(one.model, []).append(one)
    return found


def vanished(layers: list[Weight]) -> list[Weight]:
    """The first layers of one model that stand still, though the last ones do not."""
    # Most models are in order, and have thousands of layers: the newest samples show that.
    newest = [one.newest(GRADIENT) for one in layers]
    if len(layers) < LAYERS + 1 or not newest[0] < GATE * max(newest):
        return []
    told = [one for one in layers if len(one.gradient.values) >= LEAST_SAMPLES]
    if len(told) < 3 or told[0].gradient.last_step < LEAST_STEP:
        return []
    levels = [float(np.median(one.gradient.values[-2 * LEAST_SAMPLES :])) for one in told]
    top = max(levels)
    lost, felt = [], 0
    for one, level in zip(told, levels, strict=True):
        # Below some 1e-22 the squares of float32 are 0. A layer that is cut off has 0 too, and none behind it fades.
        if level >= RATIO * top or top < SMALL or (level == 0 and felt) or not _stands(one, level):
            break
        felt += level > 0
        lost.append(one)
    return lost if felt >= LAYERS else []


def _stands(one: Weight, level: float) -> bool:
    """Whether steps change as good as nothing of it; where that is not told, by its gradient alone."""
    if not len(one.update.values) or not len(one.held.values):
        return level < SMALL
    held = float(np.median(one.held.values))
    share = float(np.median(one.update.values)) / held if held > 0 else 1.0
    return share < STANDS or _only_decays(one)


def _only_decays(one: Weight) -> bool:
    """Whether all that steps change of it is that they make it smaller, as its decay does by itself."""
    held, steps = one.held.values[-2 * LEAST_SAMPLES :], one.held.steps[-2 * LEAST_SAMPLES :]
    if len(held) < LEAST_SAMPLES:
        return False
    changed = float(np.median(one.update.values[-2 * LEAST_SAMPLES :])) * float(steps[-1] - steps[0])
    return bool(held[0] - held[-1] > DECAY * changed > 0)


def _finding(scene: Scene, model: str, lost_by: dict[int, list[Weight]]) -> Finding:
    ranks = tuple(sorted(lost_by)) if len(lost_by) < len(_told(scene)) else scene.state.signals.ranks("grad_norm")
    lost = next(iter(lost_by.values()))
    rank = next(iter(lost_by))
    all_ = _by_model(weights(scene.state, rank))[model]
    last = float(np.median(all_[-1].gradient.values[-10:]))
    first = float(np.median(lost[0].gradient.values[-10:]))
    text = (
        f"gradients vanish before they reach the first {len(lost)} of {len(all_)} layers of {model}: {figure(first)} at"
        f" {lost[0].name}, {figure(last)} at {all_[-1].name}; these layers do not train"
    )
    told = [seen(f"norm of the gradient of {w.name}: {_level(w)}", rank) for w in lost[:6]]
    moved = [w for w in lost if len(w.update.values)]
    told += [seen(f"a step changes {w.name} by {figure(float(np.median(w.update.values)))}", rank) for w in moved[:2]]
    why = cause("depth", "each layer passes on a small part of the gradient only, as saturated or squashing activations"
                " without a way around them do", 0.8, *told, basis=Basis.RESEARCH)  # fmt: skip
    step = int(lost[0].gradient.steps[LEAST_SAMPLES - 1])
    return finding("numerics.gradient_vanishing", Severity.CRITICAL, ranks, text, why,
                   names=tuple(w.name for w in lost[:20]), step=step, key=f"vanishing {model}")  # fmt: skip


def _level(one: Weight) -> str:
    return figure(float(np.median(one.gradient.values[-10:])))
