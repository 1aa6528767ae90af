"""A variational autoencoder whose codes tell nothing of the inputs (posterior collapse, arXiv:1901.05534)."""

import re

import numpy as np

from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.training.curves import Curve, figure, lasting, rolling_median
from diagd.daemon.detectors.training.run import Metric, Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

NATS, PART, LASTS = 0.01, 0.005, 60  # nats, of the reconstruction's loss, samples
RECENT = 20  # samples that tell its size
# A code that told much, and whose end made the loss worse, needs less time.
ALIVE, LEFT, LOST, SOON = 0.5, 1e-3, 1.5, 15  # nats at its best, of these, times the best loss, samples
WIDTH = 5
_LOG_VARIANCE = re.compile(r"log_?var", re.IGNORECASE)


def collapsed_posterior(run: Run) -> Finding | None:
    """The first KL term that is as good as nothing beside what is decoded."""
    whole = run.metric("reconstruction_loss") or (run.metric("loss") if _encodes(run) else None)
    for metric in run.metrics("kl"):
        if not len(metric.curve.values) or metric.off_by > NATS:
            continue
        found = (whole is not None and _never_more(metric, whole)) or _gone(run, metric)
        if found:
            return _finding(run, metric, *found)
    return None


def _encodes(run: Run) -> bool:
    """Whether a model has a head for the logarithm of a variance: its KL is one of codes.

    That of a policy, or of a student, is small by design.
    """
    names = (entry.name for entry in run.state.tensors.entries if entry.kind == "parameter")
    return not run.reinforced and any(_LOG_VARIANCE.search(name) for name in names)


def _never_more(metric: Metric, whole: Metric) -> tuple[int, str] | None:
    """For so many samples, and what stands beside it: nothing is known of what it was before."""
    values, size = metric.curve.values, abs(float(np.median(whole.curve.values[-RECENT:])))
    count = lasting(np.abs(values) <= min(NATS, PART * size))
    enough = count >= LASTS and bool(values[-count:].any())
    return (int(metric.curve.steps[-count + LASTS - 1]), f"{whole.name} of {figure(size)}") if enough else None


def _gone(run: Run, metric: Metric) -> tuple[int, str] | None:
    """The same, of one that was large, and left a loss behind that has risen since."""
    if len(metric.curve.values) < SOON:
        return None
    best = float(rolling_median(metric.curve.values, WIDTH).max())
    count = lasting(np.abs(metric.curve.values) <= min(NATS, LEFT * best))
    if best < ALIVE or count < SOON or run.reinforced:  # of a policy it is small by design
        return None
    since = int(metric.curve.steps[-count])
    for loss in (*run.metrics("reconstruction_loss"), *run.metrics("loss")):
        if _has_risen(loss.curve, since):
            level = figure(float(np.median(loss.curve.values[-SOON:])))
            return int(metric.curve.steps[-count + SOON - 1]), f"{loss.name} that has risen to {level}"
    return None


def _has_risen(loss: Curve, since: int) -> bool:
    before, after = loss.until(since).values, loss.values[loss.steps > since]
    if len(before) < WIDTH or len(after) < WIDTH:
        return False
    least = float(rolling_median(before, WIDTH).min())
    return least > 0 and float(np.median(after)) > LOST * least


def _finding(run: Run, metric: Metric, step: int, beside: str) -> Finding:
    values = metric.curve.values
    text = (
        f"{metric.name} is {figure(float(values[-1]))} and was {figure(float(values.max()))} at most, beside {beside}:"
        " what is decoded no longer depends on the inputs"
    )
    why = cause("posterior", "the KL term outweighs what the code is worth, or the decoder does without it", 0.75,
                seen(f"{metric.name} {figure(float(values.max()))} at most before", metric.rank),
                basis=Basis.RESEARCH)  # fmt: skip
    return finding("training.kl_zero", Severity.WARNING, run.ranks, text, why, names=(metric.name,), step=step,
                   key="posterior")  # fmt: skip
