"""The entropy and the variety of what a policy or a language model puts out.

Where there is an optimum, a policy that has found it is certain: low entropy alone is worth knowing, no more. It is a
fault where variety is gone with it, or the reward. A high entropy is that of an untrained model: only a rise back to
it, or far above where the run began, says something (0.9 ln V by itself fires at every start from fresh weights).
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, figure, lasting, rolling_median
from diagd.daemon.detectors.training.run import Metric, Run
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.detectors.training.uniform import uniform
from diagd.daemon.state.metrics_names import canonical

WIDTH = 5  # samples of the median that stands for the level
LASTS = 10  # samples
LEAST = 20
GONE = 0.02  # of the highest entropy (or of ln V, where the run began untrained)
LITTLE = 0.1  # of it, for a policy of several actions that gains nothing by being so certain
CHOICES = 1.0  # nats of entropy: some three actions
SURE = 4.0  # standard errors
LEARNED, LOST = 0.7, 0.9  # of the first entropy: it has been below the one and is above the other again
WIDER = 2.0  # nats above the lowest, of a density: it covers seven times as much
FAR = 4.0  # nats above the lowest, whatever that was: some fifty times as many choices
RISEN = 3.0  # times the lowest, for a run that began with a trained model
ONE = 0.1  # of the variety that there was
# Where entropy and variety fall together, the two speak for each other: less of each is enough, and for a shorter time.
TOGETHER, TOGETHER_LASTS, TOGETHER_ENTROPY = 0.2, 5, 0.1
COUNTED = 3  # modes, or words: of so many one is left
SHARE = 0.9  # of one token, or of repetition
FALLEN = 0.3  # of what the reward had gained
_VARIETY = frozenset({"diversity", "coverage", "modes"})


def outputs(scene: Scene) -> Iterator[Finding]:
    """Variety first: entropy that is gone with it is the same fault."""
    run = Run(scene)
    entropy = next((m for m in run.metrics("entropy") if len(m.curve.steps) >= LEAST), None)
    collapsed = _variety(run, entropy)
    if collapsed is not None:
        yield collapsed
    elif entropy is not None and (found := _entropy(run, entropy)) is not None:
        yield found


def _variety(run: Run, entropy: Metric | None) -> Finding | None:
    for metric in _varied(run):
        if len(metric.curve.steps) < LEAST:
            continue
        found = _collapsed(metric, together=entropy is not None and _has_fallen(entropy))
        if found is not None:
            text, since = found
            names = (metric.name, *((entropy.name,) if entropy is not None else ()))
            evidence = [seen(text, metric.rank)]
            if entropy is not None and entropy.curve.values[0] > 0:
                values = entropy.curve.values
                evidence.append(seen(f"{entropy.name} {figure(values[:5].max())} at first, {figure(values[-1])} now",
                                     entropy.rank))  # fmt: skip
            why = cause(
                "one output",
                "one output is worth more to the objective than all others, and nothing holds"
                " the rest in place: an exploitable reward, no entropy or KL term",
                0.65,
                *evidence,
            )
            return finding("training.mode_collapse", Severity.WARNING, run.ranks,
                           f"what the model puts out has lost its variety: {text}", why, names=names,
                           step=since)  # fmt: skip
    return None


def _varied(run: Run) -> Iterator[Metric]:
    yield from run.metrics("distinct_tokens")
    yield from run.metrics("token_top_share")
    yield from run.metrics("repetition")
    yield from run.named(_VARIETY)


def _has_fallen(entropy: Metric) -> bool:
    values = entropy.curve.values
    highest = float(rolling_median(values, WIDTH).max())
    return bool(values.min() >= 0 and (values[-TOGETHER_LASTS:] <= TOGETHER_ENTROPY * highest).all())


def _collapsed(metric: Metric, *, together: bool) -> tuple[str, int] | None:
    """What is left, in words, and since which step; None where there is enough."""
    values, kind = metric.curve.values, canonical(metric.name)
    recent, one = (values[-TOGETHER_LASTS:], TOGETHER) if together else (values[-LASTS:], ONE)
    if kind in ("token_top_share", "repetition"):
        if values.max() <= 1 and (recent > SHARE).all() and values[:LASTS].min() < 0.5:
            said = f"{metric.name} is {figure(recent[-1])}, and was {figure(values[:LASTS].min())}"
            return said, int(metric.curve.steps[-lasting(values > SHARE)])
        return None
    smooth = rolling_median(values, WIDTH)
    most = float(smooth.max()) if len(smooth) else 0.0
    counted = most >= COUNTED and bool((values == np.round(values)).all())
    little = max(one * most, 1.0 if counted or most >= 10 else 0.0)
    if most <= 0 or not (recent <= little).all():
        return None
    said = f"{metric.name} is {figure(recent[-1])}, and was {figure(most)}"
    return said, int(metric.curve.steps[-lasting(values <= little)])


def _entropy(run: Run, metric: Metric) -> Finding | None:
    values = metric.curve.values
    if values.min() < 0:
        return _of_density(run, metric)
    smooth = rolling_median(values, WIDTH)
    first, highest = float(np.median(values[:WIDTH])), float(smooth.max())
    if highest > 0 and (values[-LASTS:] <= max(GONE * highest, metric.off_by)).all():
        return _collapse(run, metric, highest)
    if highest > CHOICES and (values[-LASTS:] <= LITTLE * highest).all() and _gains_nothing(run):
        return _collapse(run, metric, highest)
    lowest = int(smooth.argmin())
    now = float(smooth[-LASTS:].min()) if len(smooth) - lowest > LASTS else 0.0
    back = float(smooth[lowest]) < LEARNED * first and now > LOST * first
    times = now > RISEN * max(float(smooth[lowest]), 1e-3) and now > 1.5 * first
    above = times or now > max(first, float(smooth[lowest]) + FAR)
    if back or above:
        return _explosion(run, metric, float(smooth[lowest]), now, back)
    return uniform(run, metric)


def _of_density(run: Run, metric: Metric) -> Finding | None:
    """It has no zero, and so no parts of a highest value: only what it has gained, in nats."""
    smooth = rolling_median(metric.curve.values, WIDTH)
    lowest = int(smooth.argmin())
    if len(smooth) - lowest <= LASTS:
        return None
    first = float(np.median(metric.curve.values[:WIDTH]))
    least, now = float(smooth[lowest]), float(smooth[-LASTS:].min())
    return _explosion(run, metric, least, now, back=False) if now > max(first, least + WIDER) else None


def _collapse(run: Run, metric: Metric, highest: float) -> Finding:
    lost = _reward_lost(run)
    share = GONE if metric.curve.values[-1] <= GONE * highest else LITTLE
    count = lasting(metric.curve.values <= share * highest)
    text = (
        f"{metric.name} has fallen from {figure(highest)} to {figure(metric.curve.values[-1])} and stays there: the"
        f" policy tries one action only"
    )
    text += f", and {lost}" if lost else ""
    why = cause("entropy", "nothing keeps the policy from certainty: the entropy term is missing or too weak, the"
                " learning rate too high, or the task is solved", 0.6,
                seen(f"{metric.name} below {share:.0%} of its highest for {count} samples", metric.rank))  # fmt: skip
    severity = Severity.WARNING if lost else Severity.INFO
    return finding("training.entropy_collapse", severity, run.ranks, text, why, names=(metric.name,),
                   step=int(metric.curve.steps[-max(count, 1)]))  # fmt: skip


def _explosion(run: Run, metric: Metric, lowest: float, now: float, back: bool) -> Finding:
    lost = _reward_lost(run)
    text = f"{metric.name} has risen from {figure(lowest)} to {figure(now)}"
    text += ", where it was before anything was learned" if back else ""
    text += f"; {lost}" if lost else ""
    why = cause("noise", "updates that are too large, or an entropy term that outweighs the reward, make the outputs"
                " random again", 0.6, seen(f"{metric.name} lowest {figure(lowest)}, now {figure(now)}", metric.rank),
                )  # fmt: skip
    severity = Severity.WARNING if lost or (back and run.metric("reward") is None) else Severity.INFO
    return finding("training.entropy_explosion", severity, run.ranks, text, why, names=(metric.name,),
                   step=metric.curve.last_step)  # fmt: skip


def _reward_lost(run: Run) -> str:
    """That the reward has gone down again, in words; empty where it has not, or is not logged."""
    metric = run.metric("reward")
    if metric is None or len(metric.curve.steps) < LEAST:
        return ""
    best, now = _best_and_now(metric.curve)
    first = float(np.median(metric.curve.values[:WIDTH]))
    gained = best - first
    if gained <= 0 or best - now < FALLEN * gained or best - now < 2 * float(np.std(metric.curve.values[-LASTS:])):
        return ""
    return f"{metric.name} has fallen from {figure(best)} to {figure(now)}"


def _gains_nothing(run: Run) -> bool:
    """Whether the reward is known, and no better in the last third of the run than in the one before, but for noise."""
    metric = run.metric("reward")
    if metric is None or len(metric.curve.values) < 3 * LASTS:
        return False
    third = len(metric.curve.values) // 3
    before, now = metric.curve.values[-2 * third : -third], metric.curve.values[-third:]
    error = float(np.hypot(before.std(), now.std())) / third**0.5
    return bool(now.mean() - before.mean() < SURE * error)


def _best_and_now(curve: Curve) -> tuple[float, float]:
    smooth = rolling_median(curve.values, LASTS)
    return float(smooth.max()), float(smooth[-1])
