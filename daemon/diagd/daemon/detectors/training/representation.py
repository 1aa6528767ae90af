"""Embeddings that all become the same: the spread of what an encoder puts out is gone (arXiv:2105.04906, section 1)."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Floats, figure, rolling_median
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

_SPREAD = frozenset({"std", "spread", "variance", "stddev"})
_OF = frozenset(
    {"embedding", "embeddings", "emb", "feature", "features", "feat", "representation", "representations", "repr"}
)
# Of what a generator makes, where one is trained against a discriminator: elsewhere such spreads are noise by design.
_MADE = frozenset({"sample", "samples", "fake", "fakes", "generated", "gen"})
# How alike pairs are that are meant to differ: the negatives of a contrastive loss.
_ALIKE = frozenset({"cos", "cosine", "sim", "similarity"})
_PAIRS = frozenset({"other", "others", "neg", "negative", "negatives", "different", "inter", "between", "unmatched"})
SAME, APART = 0.95, 0.7  # of the largest that a cosine can be: now, and at first
WIDTH, LASTS, LEAST = 5, 10, 30  # samples
GONE = 0.1  # of the largest
LOW, STILL = 0.2, 0.9  # of the largest for half of the run, and of its middle third in its last one: worth knowing
# A spread below this is small for normalised embeddings, which begin at some tenths: gone at once, if need be.
SMALL = 0.1

_ONE_POINT = (
    "the objective is best where all embeddings are the same, and nothing keeps them apart: a variance or contrastive"
    " term is missing, or too weak"
)
_ONE_MODE = "the generator has found one output that the discriminator takes, and is led nowhere else"


def collapse(scene: Scene) -> Iterator[Finding]:
    """A logged spread that has fallen to a tenth of what it was, and stays there."""
    run = Run(scene)
    for metric in run.named(_SPREAD):
        values = metric.curve.values
        made = run.adversarial and bool(_MADE & set(metric.words))
        if len(values) < LEAST or not (made or _OF & set(metric.words)) or values.min() < 0:
            continue
        most = float(rolling_median(values, WIDTH).max())
        if values[-LASTS:].max() < SMALL:
            most = max(most, float(values[0]))
        gone = bool((values[-LASTS:] <= GONE * most).all())
        if most <= 0 or not (gone or _sinks(values, most)):
            continue
        text = (
            f"{metric.name} has fallen from {figure(most)} to {figure(float(values[-1]))}: what the"
            f" {'generator' if made else 'encoder'} puts out is nearly the same for all inputs"
        )
        why = cause(
            "one mode" if made else "one point",
            _ONE_MODE if made else _ONE_POINT,
            0.7,
            seen(f"{metric.name} {figure(float(values[-1]))}", metric.rank),
            basis=Basis.RESEARCH,
        )
        names = (metric.name, "samples" if made else "embedding")
        severity = Severity.WARNING if gone else Severity.INFO
        yield finding("training.mode_collapse", severity, run.ranks, text, why, names=names,
                      step=metric.curve.last_step, key="representation")  # fmt: skip
        return
    yield from _alike(run)


def _alike(run: Run) -> Iterator[Finding]:
    """A logged likeness of pairs that are meant to differ, which has risen until they are the same."""
    for metric in run.named(_ALIKE):
        values = metric.curve.values
        if len(values) < LEAST or not _PAIRS & set(metric.words) or values.max() > 1.01:
            continue
        first = float(np.median(values[:WIDTH]))
        if first > APART or values[-LASTS:].min() < SAME:
            continue
        text = (
            f"{metric.name} has risen from {figure(first)} to {figure(float(values[-1]))}: what is meant to differ is"
            " the same for the encoder"
        )
        why = cause("one point", _ONE_POINT, 0.7, seen(f"{metric.name} {figure(float(values[-1]))}", metric.rank),
                    basis=Basis.RESEARCH)  # fmt: skip
        yield finding("training.mode_collapse", Severity.WARNING, run.ranks, text, why,
                      names=(metric.name, "embedding"), step=metric.curve.last_step, key="representation")  # fmt: skip
        return


def _sinks(values: Floats, most: float) -> bool:
    """Whether it has been low for half of the run, and goes on to fall."""
    third = len(values) // 3
    middle, late = (float(np.median(part)) for part in (values[third : 2 * third], values[-third:]))
    return bool((values[len(values) // 2 :] <= LOW * most).all()) and late < STILL * middle
