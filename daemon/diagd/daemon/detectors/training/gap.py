"""Train and validation part: the one gets better while the other gets worse."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, bends, figure
from diagd.daemon.detectors.training.run import Metric, Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

EVALUATIONS = 5  # at least, of which
SINCE = 3  # came after the best
WORSE = 0.1  # of the best: by so much the validation loss has risen
BAD = 0.25
DEVIATIONS = 3.0  # of the evaluations' own noise
WIDE, KEPT, LEARNED = 20.0, 0.4, 0.05  # times the training loss; of the first validation and training losses
WIDE_LASTS, ALIKE = 10, 3.0  # evaluations; how many times apart the two may be at first: one may be a sum
BETTER = 0.05  # of the training loss: by so much it has fallen meanwhile


def generalization_gap(scene: Scene) -> Iterator[Finding]:
    """Of validation losses, else of accuracies."""
    run = Run(scene)
    if run.reinforced or run.adversarial:
        return
    for held_out, train, sign in (("val_loss", "loss", 1.0), ("val_accuracy", "accuracy", -1.0)):
        for metric in run.metrics(held_out):
            curve = _train(run, metric, train)
            found = _parted(run, metric, curve, sign) if curve is not None else None
            if curve is not None and sign > 0 and (found is None or found.severity is Severity.INFO):
                found = _wide(run, metric, curve) or found
            if found is not None:
                yield found
                return


def _train(run: Run, metric: Metric, wanted: str) -> Curve | None:
    if wanted == "loss":
        return run.losses().get(metric.rank)
    logged = next((m for m in run.metrics(wanted) if m.rank == metric.rank), None)
    return logged.curve if logged is not None else None


def _parted(run: Run, metric: Metric, train: Curve, sign: float) -> Finding | None:
    """Compare the evaluations since the best one with what training did between the same steps."""
    values = metric.curve.values
    if len(values) < EVALUATIONS:
        return None
    at = int((sign * values).argmin())
    after = values[at + 1 :]
    if len(after) < SINCE:
        return None
    best, now = float(values[at]), float(np.median(after[-SINCE:]))
    lost = sign * (now - best)
    if lost < max(WORSE * abs(best), DEVIATIONS * bends(values)) or not (sign * (after[-SINCE:] - best) > 0).all():
        return None
    then, later = _level(train, int(metric.curve.steps[at])), _level(train, train.last_step)
    if then is None or later is None or sign * (then - later) < BETTER * abs(then):
        return None
    what = "loss" if sign > 0 else "accuracy"
    if sign > 0 and (better := _more_accurate(run, metric, int(metric.curve.steps[at]))) is not None:
        return _overconfident(run, metric, best, now, better)
    text = (
        f"{metric.name} was best at step {int(metric.curve.steps[at])} ({figure(best)}) and is {figure(now)} now, while"
        f" the training {what} went from {figure(then)} to {figure(later)}: the model learns its training data by heart"
    )
    why = cause("memorised", "the data is too little for the model and the number of passes over it", 0.65,
                seen(f"{len(after)} evaluations since the best, the last {SINCE} worse", metric.rank))  # fmt: skip
    severity = Severity.WARNING if lost >= BAD * abs(best) else Severity.INFO
    return finding("training.generalization_gap", severity, run.ranks, text, why, names=(metric.name, "loss"),
                   step=metric.curve.last_step)  # fmt: skip


def _wide(run: Run, metric: Metric, train: Curve) -> Finding | None:
    """Nothing need get worse: training has learned nearly all of its data, and of other data hardly anything."""
    values, steps = metric.curve.values[-WIDE_LASTS:], metric.curve.steps[-WIDE_LASTS:]
    levels = [_level(train, int(step)) for step in steps]
    if len(values) < WIDE_LASTS or len(metric.curve.values) <= WIDE_LASTS or None in levels:
        return None
    learned = np.array(levels, np.float64)
    first, now = float(np.median(train.values[:SINCE])), float(np.median(learned))
    if not 0 < now <= LEARNED * first or (values < WIDE * learned).any():
        return None
    before = float(metric.curve.values[0])
    if values.min() < KEPT * before or not first / ALIKE <= before <= ALIKE * first:
        return None
    held_out = float(np.median(values))
    text = (
        f"{metric.name} is {figure(held_out)} where the training loss is {figure(now)}, {held_out / now:.0f} times"
        " less: what the model has learned holds for its training data alone"
    )
    why = cause("apart", "validation is given other inputs than training (another scale, normalisation or mode), or the"
                " training data is learned by heart", 0.65,
                seen(f"training loss {figure(first)} at first, {figure(now)} now; {metric.name}"
                     f" {figure(before)} at first", metric.rank))  # fmt: skip
    return finding("training.generalization_gap", Severity.WARNING, run.ranks, text, why, names=(metric.name, "loss"),
                   step=metric.curve.last_step)  # fmt: skip


def _more_accurate(run: Run, loss: Metric, step: int) -> Metric | None:
    """The validation accuracy, where it has risen since that step: what the model knows of new data still grows."""
    for metric in run.metrics("val_accuracy"):
        then, later = metric.curve.until(step).values, metric.curve.values[metric.curve.steps > step]
        if metric.rank != loss.rank or not len(then) or len(later) < SINCE:
            continue
        if np.median(later[-SINCE:]) - then.max() > bends(metric.curve.values):
            return metric
    return None


def _overconfident(run: Run, loss: Metric, best: float, now: float, better: Metric) -> Finding:
    text = (
        f"{loss.name} has risen from {figure(best)} to {figure(now)} while {better.name} still gets better"
        f" ({figure(float(better.curve.values[-1]))} now): the model is too sure of what it gets wrong"
    )
    why = cause("overconfident", "the loss weighs how sure the model is of few errors, not how many there are", 0.65,
                seen(f"{better.name} is higher than when {loss.name} was best", loss.rank))  # fmt: skip
    return finding("training.generalization_gap", Severity.INFO, run.ranks, text, why, names=(loss.name, better.name),
                   step=loss.curve.last_step)  # fmt: skip


def _level(train: Curve, step: int) -> float | None:
    """The training curve around a step."""
    near = train.values[np.abs(train.steps - step) <= 10]
    return float(np.median(near)) if len(near) else None
