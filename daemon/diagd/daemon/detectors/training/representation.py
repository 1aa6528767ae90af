"""Embeddings that all become the same: the spread of what an encoder puts out is gone (arXiv:2105.04906, section 1)."""

from collections.abc import Iterator

from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import figure, rolling_median
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

_SPREAD = frozenset({"std", "spread", "variance", "stddev"})
_OF = frozenset(
    {"embedding", "embeddings", "emb", "feature", "features", "feat", "representation", "representations", "repr"}
)
WIDTH, LASTS, LEAST = 5, 10, 30  # samples
GONE = 0.1  # of the largest
SMALL = (
    0.1  # a spread below this is small for normalised embeddings, which begin at some tenths: gone at once, if need be
)


def collapse(scene: Scene) -> Iterator[Finding]:
    """A logged spread that has fallen to a tenth of what it was, and stays there."""
    run = Run(scene)
    for metric in run.named(_SPREAD):
        values = metric.curve.values
        if len(values) < LEAST or not _OF & set(metric.words) or values.min() < 0:
            continue
        most = float(rolling_median(values, WIDTH).max())
        if values[-LASTS:].max() < SMALL:
            most = max(most, float(values[0]))
        if most <= 0 or not (values[-LASTS:] <= GONE * most).all():
            continue
        text = (
            f"{metric.name} has fallen from {figure(most)} to {figure(float(values[-1]))}: what the encoder puts out is"
            " nearly the same for all inputs"
        )
        why = cause(
            "one point",
            "the objective is best where all embeddings are the same, and nothing keeps them apart: a variance or"
            " contrastive term is missing, or too weak",
            0.7,
            seen(f"{metric.name} {figure(float(values[-1]))}", metric.rank),
            basis=Basis.RESEARCH,
        )
        names = (metric.name, "embedding")
        yield finding("training.mode_collapse", Severity.WARNING, run.ranks, text, why, names=names,
                      step=metric.curve.last_step, key="representation")  # fmt: skip
        return
