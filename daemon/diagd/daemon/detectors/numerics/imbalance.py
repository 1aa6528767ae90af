"""Heads of one trunk whose gradients are orders of magnitude apart: the largest alone decides what the trunk learns."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.numerics.weights import SOME, Weight, is_besides, weights
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import figure
from diagd.daemon.detectors.training.saying import cause, finding, seen

APART = 100.0  # a common alarm for modules of one model; between any two of them it fires on healthy transformers
APART_BY_DESIGN = 1e4  # of a policy and a value: returns are as large as they are
APART_CLIPPED = 1e3  # of these, where one clip at each step cuts both down: the smaller is left with next to nothing
AT_CLIP = 1e-3  # relative
LEAST_SAMPLES, LEAST_STEP = 8, 16
MOST = 0.8  # of the samples
_ACTOR_CRITIC = (
    {"v", "value", "critic", "vf", "value_head", "v_head"},
    {"pi", "policy", "actor", "policy_head", "advantage", "adv"},
)


def imbalances(scene: Scene) -> Iterator[Finding]:
    """Heads that are too far apart."""
    found: dict[str, dict[int, tuple[Weight, Weight, float]]] = {}
    ranks = scene.state.signals.ranks("grad_norm")
    for rank in ranks[:SOME]:
        for model, heads in heads_of(weights(scene.state, rank)).items():
            pair = apart(heads, APART_CLIPPED if _is_clipped(scene, rank) else APART_BY_DESIGN)
            if pair is not None:
                found.setdefault(model, {})[rank] = pair
    for model, pairs in found.items():
        yield _finding(model, pairs, ranks if len(pairs) == len(ranks[:SOME]) else tuple(sorted(pairs)))


def heads_of(all_: list[Weight]) -> dict[str, list[list[Weight]]]:
    """By model, the matrices of each head: what comes last, begins with the same width, and ends in another.

    Layers that follow each other are no heads: what one ends with is what the next begins with.
    """
    models: dict[str, list[Weight]] = {}
    for one in all_:
        # The gates of a recurrent cell have other names, and are no heads.
        if one.is_matrix and one.info is not None and one.name.endswith(".weight") and not is_besides(one.name):
            models.setdefault(one.model, []).append(one)
    found = {}
    for model, matrices in models.items():
        modules: dict[str, list[Weight]] = {}
        for one in matrices:
            modules.setdefault(one.module, []).append(one)
        heads = _last_alike([[one] for one in matrices]) or _last_alike(list(modules.values()))
        if heads:
            found[model] = heads
    return found


def _last_alike(parts: list[list[Weight]]) -> list[list[Weight]]:
    """Of parts of a model in their order the last ones, if they can be heads of what comes before; else none."""
    heads: list[list[Weight]] = []
    for part in reversed(parts):
        width = heads[0][0].fan_in if heads else part[0].fan_in
        ends = part[-1].info.shape[0] if part[-1].info is not None else width
        if part[0].fan_in != width or (heads and ends == width):
            break
        heads.insert(0, part)
    return heads if 2 <= len(heads) < len(parts) else []


def _is_clipped(scene: Scene, rank: int) -> bool:
    """Whether what the optimizer is given has the same norm at nearly each step."""
    told = scene.state.signals.series(rank, "grad_norm")
    if told is None or len(told) < LEAST_SAMPLES:
        return False
    highest = float(told.values.max())
    return highest > 0 and float((told.values >= (1 - AT_CLIP) * highest).mean()) >= MOST


def apart(heads: list[list[Weight]], by_design: float = APART_BY_DESIGN) -> tuple[Weight, Weight, float] | None:
    """The largest and the smallest head's last matrix and how far they are apart; None where that is in order.

    Args:
        by_design: How far a policy and a value may be.
    """
    last = [head[-1] for head in heads if len(head[-1].gradient.values) >= LEAST_SAMPLES]
    if len(last) < 2 or last[0].gradient.last_step < LEAST_STEP:
        return None
    levels = [float(np.median(one.gradient.values)) for one in last]
    large, small = last[int(np.argmax(levels))], last[int(np.argmin(levels))]
    if min(levels) <= 0:
        return None  # it gets none at all, which another rule speaks of
    common = np.intersect1d(large.gradient.steps, small.gradient.steps)
    above = large.gradient.values[np.isin(large.gradient.steps, common)]
    below = small.gradient.values[np.isin(small.gradient.steps, common)]
    limit = by_design if _by_design(large, small) else APART
    if len(common) < LEAST_SAMPLES or len(above) != len(below) or (above > limit * below).mean() < MOST:
        return None
    return large, small, float(np.median(above / np.maximum(below, 1e-300)))


def _by_design(one: Weight, other: Weight) -> bool:
    names = {*one.place.lower().split("."), *other.place.lower().split(".")}
    return all(names & kind for kind in _ACTOR_CRITIC)


def _finding(model: str, pairs: dict[int, tuple[Weight, Weight, float]], ranks: tuple[int, ...]) -> Finding:
    rank, (large, small, times) = next(iter(pairs.items()))
    strong, weak = (figure(float(np.median(w.gradient.values))) for w in (large, small))
    text = (
        f"the gradients of {model}'s heads are {times:.0f} times apart: {large.place} has {strong},"
        f" {small.place} {weak};"
        f" what they share learns for {large.place} alone"
    )
    told = [seen(f"norm of the gradient of {w.name}: {figure(float(np.median(w.gradient.values)))} in the middle", rank)
            for w in (large, small)]  # fmt: skip
    why = cause("scale", "the terms of the loss have other units or weights: one is all that counts", 0.8, *told,
                basis=Basis.RESEARCH)  # fmt: skip
    step = int(small.gradient.steps[LEAST_SAMPLES - 1])
    return finding("numerics.gradient_imbalance", Severity.WARNING, ranks, words.shortened(text), why,
                   names=(small.name, large.name), step=step, key=f"heads {model}")  # fmt: skip
