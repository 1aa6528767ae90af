"""A norm that lies at its clamp, so that what is clamped has no say any more."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, figure, lasting
from diagd.daemon.detectors.training.run import Metric, Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

LASTS = 30  # samples
AT = 0.95  # of the limit
SHARE = 0.9  # of the vectors at it
SHARE_RISEN, LOW = 0.75, 0.25  # or so many, where few were at first
CLIPPED = 0.75  # of the ratios: healthy runs clip a tenth to a third of them (arXiv:2005.12729)
SHARES = (
    ("clamp_share", SHARE, "most of what is clamped lies at its limit", "clamp"),
    ("clip_fraction", CLIPPED, "most ratios lie outside of the range that they are clipped to, where there is no"
     " gradient: old and new log-probabilities are not of the same actions, or a step goes too far", "clamp"),
    ("value_clip_fraction", SHARE, "most values are held at the range that they may move by in an update, where their"
     " loss has no gradient: the critic creeps after the returns", "value_clip"),
)  # fmt: skip
WHY = {
    "clamp": "what is clamped grows against its limit: the gradient beyond it is cut off",
    "value_clip": "the range is small against the returns: it is in their units, unlike that of the policy's ratio",
}
SAME = 1e-5  # of the value: no norm that still moves is so constant
RISEN = 0.8  # of the limit: from below it the norm came


def clamps(scene: Scene) -> Iterator[Finding]:
    """Norms against a logged limit, the share of what is clamped, and norms that stop dead where they were rising."""
    run = Run(scene)
    limits = run.metrics("norm_limit")
    for metric in run.metrics("norm"):
        limit = next((one for one in limits if _belongs(one, metric)), None)
        found = _at_limit(run, metric, limit) if limit is not None else _stopped(run, metric)
        if found is not None:
            yield found
            return
    for wanted, share, said, key in SHARES:
        for metric in run.metrics(wanted):
            values = metric.curve.values
            least = min(share, SHARE_RISEN) if np.median(values[:5]) <= LOW else share
            if values.max() <= 1 and lasting(values >= least) >= LASTS:
                text = f"{metric.name} is {figure(metric.curve.values[-1])}: {said}"
                yield _finding(run, metric, text, Severity.WARNING, Basis.OBSERVATION, key)
                return


def _belongs(limit: Metric, metric: Metric) -> bool:
    """Whether it is this norm's limit: of the same rank, and no setting of gradient clipping."""
    return limit.rank == metric.rank and not {"grad", "gradient", "clip"} & set(limit.words)


def _at_limit(run: Run, metric: Metric, limit: Metric) -> Finding | None:
    most = float(limit.curve.values[-1])
    if most <= 0 or metric.curve.values.max() > 1.05 * most:
        return None  # it is not what it is clamped by
    count = lasting(metric.curve.values >= AT * most)
    if count < LASTS:
        return None
    text = (
        f"{metric.name} is {figure(metric.curve.values[-1])} of at most {figure(most)} for {count} samples: what is"
        " clamped lies at its limit, so that its length says nothing any more"
    )
    return _finding(run, metric, text, Severity.WARNING, Basis.OBSERVATION)


def _stopped(run: Run, metric: Metric) -> Finding | None:
    curve = metric.curve
    if len(curve.steps) < LASTS + 10 or not run.is_updated(metric.rank, int(curve.steps[-LASTS])):
        return None
    top = float(curve.values[-1])
    if top <= 0 or not _is_still(curve, top) or float(np.median(curve.values[:5])) > RISEN * top:
        return None
    text = f"{metric.name} rose to {figure(top)} and has not moved for {LASTS} samples, as at the limit of a clamp"
    return _finding(run, metric, text, Severity.INFO if metric.off_by else Severity.WARNING, Basis.INFERENCE)


def _is_still(curve: Curve, top: float) -> bool:
    recent = curve.values[-LASTS:]
    return bool((np.abs(recent - top) <= SAME * top).all() and curve.values.max() <= top * (1 + SAME))


def _finding(run: Run, metric: Metric, text: str, severity: Severity, basis: Basis, key: str = "clamp") -> Finding:
    value = seen(f"{metric.name} {figure(metric.curve.values[-1])}", metric.rank)
    why = cause(key, WHY[key], 0.8, value, basis=basis)
    return finding("training.clamp_boundary", severity, run.ranks, text, why, names=(metric.name,),
                   step=metric.curve.last_step)  # fmt: skip
