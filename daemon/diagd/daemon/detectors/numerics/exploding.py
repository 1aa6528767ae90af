"""Gradients that grow by orders of magnitude and are applied as they are."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Evidence, Finding, Severity
from diagd.daemon.detectors.numerics.kept import kept_since
from diagd.daemon.detectors.numerics.loss_scale import Scaled, scaled
from diagd.daemon.detectors.numerics.out_of_range import FAR, HIGH, START, WIDTH, Left, adds_up, exploded
from diagd.daemon.detectors.numerics.weights import weights
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import curve_of, figure, rolling_median
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.detectors.training.unbounded import falls
from diagd.daemon.steps import since_text

WORSE = 2.0  # times the loss at first
WORSE_SINCE = 1.5  # times the lowest level of the loss before the norm left its range


def explosions(scene: Scene) -> Iterator[Finding]:
    """The gradients' norm of some ranks has left its range and stays out."""
    found: dict[int, Left] = {}
    for rank in scene.state.signals.ranks("grad_norm"):
        curve = curve_of(scene.state.signals.series(rank, "grad_norm"))
        one = exploded(curve) or (adds_up(curve) if kept_since(scene, rank) is not None else None)
        if one is not None and (
            not _is_clipped(scene, rank, one.step)
            or _harms_in_logs(scene, rank, one.step)
            or _is_far_in_logs(scene, rank, one)
        ):
            found[rank] = one
    if found:
        yield _finding(scene, found)


def _is_clipped(scene: Scene, rank: int, step: int) -> bool:
    """Whether the script clips: what the optimizer is given is then what it wants."""
    series = scene.state.signals.series(rank, "clip_norm")
    return series is not None and len(series) > 0 and int(series.steps[-1]) >= step


def _is_log(scene: Scene, rank: int) -> bool:
    """Whether nothing but logs is known: a norm may be that before clipping."""
    fact = scene.state.signals.fact(rank, "loaded")
    return fact is not None and fact[1] == "not known"


def _harms_in_logs(scene: Scene, rank: int, step: int) -> bool:
    """Whether the loss is worse than at first, or than before the norm left its range, where there are but logs."""
    losses = curve_of(scene.state.signals.series(rank, "loss"))
    if not _is_log(scene, rank) or len(losses.values) < START:
        return False
    now, before = float(np.median(losses.values[-WIDTH:])), rolling_median(losses.until(step).values, WIDTH)
    lowest = float(before.min()) if len(before) else np.inf
    return now > WORSE * max(losses.begin(), 0.0) or now > WORSE_SINCE * lowest > 0


def _is_far_in_logs(scene: Scene, rank: int, one: Left) -> bool:
    """Whether it is so far out, where there are but logs, that clipping at best hides what it does."""
    return _is_log(scene, rank) and one.now > max(FAR * one.began, HIGH)


def _finding(scene: Scene, found: dict[int, Left]) -> Finding:
    ranks = tuple(sorted(found))
    rank = max(ranks, key=lambda r: found[r].now)
    step, began, now, may_since = found[rank]
    worst = _worst(scene, rank)
    since = kept_since(scene, rank)
    text = (
        f"the gradients' norm of {words.ranks_text(ranks)} has grown from {figure(began)} to {figure(now)},"
        f" out of its range {since_text(may_since, step)}"
    )
    text += f", most in {worst[0]}" if worst else ""
    if since is not None:  # the cause first
        never = f"{words.verb(ranks, 'never clears', 'never clear')} the gradients (zero_grad)"
        text = f"{words.ranks_text(ranks)} {never}, so each step adds all earlier ones: {text}"
    told = [
        seen(f"norm over all gradients {figure(found[r].began)} at first, {figure(found[r].now)} now", r, step)
        for r in ranks[:8]
    ]
    told += [seen(f"norm of the gradient of {name}: {figure(value)}", rank) for name, value in _norms(scene, rank)[:3]]
    if since is not None:
        kept = Evidence(
            "before each backward pass the gradients of the step before are still there", "probe", rank, since
        )
        why = cause("kept", "the gradients are not cleared between steps", 0.9, kept, *told, basis=Basis.OBSERVATION)
    else:
        why = cause("growth", "gradients grow on their way through layers or over the sequence, and are not clipped",
                    0.8, *told, basis=Basis.RESEARCH)  # fmt: skip
    severity = Severity.CRITICAL
    if since is None and all(_is_log(scene, r) for r in ranks):
        why = cause("growth", "gradients grow on their way through layers or over the sequence; where they are clipped,"
                    " all that is left of a step is its direction", 0.6, *told)  # fmt: skip
    if since is None and all(_improves(scene, r) for r in ranks):
        severity = Severity.WARNING
        text += "; the loss still falls, as it does where it has no lower end"
    elif since is None and all(_is_log(scene, r) and not _harms_in_logs(scene, r, found[r].step) for r in ranks):
        severity = Severity.WARNING
        text += "; whether it is clipped before the step the log does not say, and the loss is not worse for it"
    if since is None and falls(curve_of(scene.state.signals.series(rank, "loss"))) is not None:
        why = cause("unbounded", "the loss has no lower end, and gradients grow with what makes it ever lower", 0.8,
                    *told)  # fmt: skip
    names = (*worst, "grad_norm", *(("zero_grad",) if since is not None else ()))
    if since is None and (by := scaled(scene.state, rank, may_since, step)) is not None:
        why = cause("scaled", _by_loss(by), 0.7 if by.alike else 0.6, *told)
        names = ("loss", "grad_norm", *worst)
    return finding("numerics.gradient_explosion", severity, ranks, text, why, names=names, step=step)


def _by_loss(by: Scaled) -> str:
    text = "a factor on the loss, a sum where it was a mean, or a division that is left out, and no layer"
    if by.began:
        return (
            f"the loss itself is {figure(by.loss)} times as large from one sample to the next, and the gradients"
            f"{' of all modules alike' if by.alike else ' with it'}: {text}"
        )
    return (
        f"the loss itself is large from the first step on ({figure(by.loss)}), and so are the gradients of all modules"
        f" alike ({figure(by.norm)}): {text}; steps of that size go astray"
    )


def _improves(scene: Scene, rank: int) -> bool:
    """Whether the rank's loss is lower now than ever before: what has grown has not harmed it yet."""
    curve = curve_of(scene.state.signals.series(rank, "loss"))
    levels = rolling_median(curve.values, WIDTH) if len(curve.values) >= 3 * WIDTH else np.zeros(0)
    return len(levels) > WIDTH and bool(np.isfinite(levels).all() and levels[-1] < levels[:-WIDTH].min())


def _norms(scene: Scene, rank: int) -> list[tuple[str, float]]:
    last = [(w.name, float(w.gradient.values[-1])) for w in weights(scene.state, rank) if len(w.gradient.values)]
    return sorted(last, key=lambda one: -one[1])


def _worst(scene: Scene, rank: int) -> tuple[str, ...]:
    return tuple(name for name, _ in _norms(scene, rank)[:3])
