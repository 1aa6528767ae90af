"""What a policy is taught by: advantages that are all zero, and a KL term that is.

Both are 0 in healthy runs too. KL is 0 before the first update, always where it is taken to the policy that has just
made the samples and one update follows (names like approx_kl), and where its coefficient is 0. Advantages are 0 for a
group whose answers are all right: in a run that comes to the end of its tasks the rewards' spread goes down bit by bit.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import figure, lasting
from diagd.daemon.detectors.training.posterior import collapsed_posterior
from diagd.daemon.detectors.training.run import Metric, Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

KL_FOR = 20  # samples
KL_FEW, KL_SPAN = 8, 60  # samples are enough, that are so many steps apart in all: each saw a policy that had moved on
KL_SKIPPED = 2  # the first are before any update
PRINTED_FOR = 60  # samples, where it is only known to be below what was printed
# A policy that is trained at this rate has moved by more than that in so many samples.
PRINTED_FINE, PRINTED_RATE = 5e-7, 1e-5
ZERO_FOR = 10  # samples
ALREADY = 3  # samples
NEVER_FOR = 30  # samples, where there has been no reward at all yet: the first ones may be hard to come by
# Fewer are worth knowing where they lie so many steps apart in all, as what is logged seldom: each saw a policy that
# had moved on. So far apart that is no longer a beginning.
NEVER_FEW, NEVER_SPAN, NEVER_LONG = 10, 100, 300
ABRUPT = 0.2  # of the highest spread: from above it to exactly 0 is no learning
BEFORE = 10  # samples that show what the spread was
TINY = 1e-7
ALL_GROUPS = 0.95  # of the groups have rewards without spread
_OLD = frozenset({"approx", "approxkl", "approximate", "ppo", "old", "new", "rollout", "ratio", "sampled"})
_POLICY = frozenset({"ref", "reference", "objective", "policy", "actor", "rlhf"})
_FACTORS = frozenset({"beta", "coef", "coeff", "coefficient", "weight"})
_SPREADS = ("reward_std", "advantage_std", "advantage_abs", "advantage_max", "zero_std_share")


def kl(scene: Scene) -> Iterator[Finding]:
    """A KL that is exactly 0 while the policy is trained."""
    run = Run(scene)
    if run.casts_are_stale or _is_switched_off(run):
        return
    if (collapsed := collapsed_posterior(run)) is not None:
        yield collapsed
        return
    for metric in run.metrics("kl"):
        count = lasting(np.abs(metric.curve.values[KL_SKIPPED:]) <= metric.off_by)
        needed = _needed(run, metric, count)
        if count < needed:
            continue
        first = int(metric.curve.steps[-count])
        if not run.is_updated(metric.rank, first):
            continue
        yield _kl_zero(run, metric, count, first, int(metric.curve.steps[-count + needed - 1]))
        return


def _needed(run: Run, metric: Metric, count: int) -> int:
    """How many samples of 0 it takes."""
    if not _has_moved(run, metric):
        return PRINTED_FOR
    spans = metric.curve.steps[-count:] - metric.curve.steps[-count] if count else np.zeros(0)
    return int(np.clip(np.searchsorted(spans, KL_SPAN) + 1, KL_FEW, KL_FOR))


def _has_moved(run: Run, metric: Metric) -> bool:
    """Whether a policy that is trained would show in it: it is exact, or printed to more than an update changes."""
    return not metric.off_by or (metric.off_by <= PRINTED_FINE and _rate(run, metric.rank) >= PRINTED_RATE)


def _kl_zero(run: Run, metric: Metric, count: int, first: int, step: int) -> Finding:
    to_old = bool(_OLD & set(metric.words)) or _is_used_once(run)
    exact = not metric.off_by
    never = count >= len(metric.curve.values) - KL_SKIPPED
    text = (
        f"{metric.name} is {'exactly 0' if exact else '0 as printed'} at {count} samples in a row, since step {first},"
        f" though the policy is updated: "
    )
    own = "the reference computes with the policy's own weights"
    if never and not (exact or _has_moved(run, metric)):
        text += f"either it has moved by less than is printed, as it does at a low learning rate, or {own}"
    else:
        text += own if never else "it was not before"
    shows = exact or _has_moved(run, metric)
    of_cause = (
        "policy and reference are the same weights (a shared object, a swap that does not take effect, casts that"
    )
    of_cause += " are kept), or the term is computed from the same log-probabilities"
    of_cause += "" if shows else "; or it is only printed as 0"
    why = cause("same weights", of_cause, 0.85 if shows else 0.4,
                seen(f"{count} values of 0 while gradients and the learning rate are above 0", metric.rank, first),
                basis=Basis.OBSERVATION if exact else Basis.INFERENCE)  # fmt: skip
    sure = _has_moved(run, metric) and not to_old and (run.reinforced or bool(_POLICY & set(metric.words)))
    severity = Severity.WARNING if sure else Severity.INFO
    return finding("training.kl_zero", severity, run.ranks, text, why, names=(metric.name,), step=step)


def _rate(run: Run, rank: int) -> float:
    return max((float(np.median(curve.values)) for curve in run.rates(rank)), default=0.0)


def _is_used_once(run: Run) -> bool:
    """Whether the policy that is updated made the samples itself: its ratio to that is 1, and none is clipped."""
    ratio, clipped = run.metric("importance_ratio"), run.metric("clip_fraction")
    ones = ratio is not None and bool((np.abs(ratio.curve.values - 1) < 1e-6).all())
    return ones or (ratio is None and clipped is not None and not clipped.curve.values.any())


def _is_switched_off(run: Run) -> bool:
    """Whether the term's factor is logged, and is 0."""
    return any(m.curve.values[-1] == 0 for m in run.named(_FACTORS) if {"kl", "beta"} & set(m.words))


def teach_nothing(scene: Scene) -> bool:
    """Whether the newest rewards are all equal: that no gradient comes of them says nothing about the model."""
    run = Run(scene)
    return any(_zero_for(wanted, metric) >= ALREADY for wanted in _SPREADS for metric in run.metrics(wanted)[:1])


def advantages(scene: Scene) -> Iterator[Finding]:
    """Rewards that are all equal: nothing is left to tell better from worse."""
    run = Run(scene)
    found = [(metric, count) for wanted in _SPREADS for metric in run.metrics(wanted)[:1]
             if (count := _zero_for(wanted, metric)) >= ZERO_FOR]  # fmt: skip
    if not found:
        return
    metric, count = found[0]
    first = int(metric.curve.steps[-count])
    before = metric.curve.values[:-count][-BEFORE:]
    reward = run.metric("reward")
    level = float(np.median(reward.curve.values[-ZERO_FOR:])) if reward is not None else None
    never = not len(before)
    span = int(metric.curve.last_step) - first
    begins = count < NEVER_FOR and span < NEVER_LONG
    if never and (count < NEVER_FEW or (begins and span < NEVER_SPAN)):
        return
    sudden = never or _is_sudden(metric, count)
    named = tuple(dict.fromkeys(m.name for m, _ in found))
    text = (
        f"{' and '.join(named[:3])} {'is' if len(named) == 1 else 'are'} 0 at {count} samples in a row, since step"
        f" {first}: all rewards of a group are equal, so that the policy learns nothing from them"
    )
    text += f" (reward {figure(level)})" if level is not None else ""
    text += f", at none of the samples from the first {span} steps" if never and count < NEVER_FOR else ""
    text += "" if sudden else ". The spread went down little by little, as where the tasks are solved"
    key = "never" if never else "sudden" if sudden else "solved"
    high = never and level is not None and level >= ALL_GROUPS
    said = _WHY["all solved" if high else key]
    why = cause(key, said, 0.9, seen(f"{metric.name} 0 at {count} samples; the highest was"
                f" {figure(float(metric.curve.values.max()))}", metric.rank, first),
                basis=Basis.OBSERVATION if sudden else Basis.INFERENCE)  # fmt: skip
    severity = Severity.WARNING if sudden and not (never and begins) else Severity.INFO
    yield finding("training.zero_advantage", severity, run.ranks, text, why,
                  names=named + _policy_loss(run), step=int(metric.curve.steps[-count + ZERO_FOR - 1]))  # fmt: skip


_WHY = {
    "never": "the reward has told no answer from another since the first step: it is a constant, fails for all, or the"
    " task is far too hard or solved by all answers already",
    "all solved": "the reward has told no answer from another since the first step, and all have the same high one: all"
    " tasks are solved already, or it is a constant",
    "sudden": "from one step to the next the reward gives the same to all answers: its rule or its input has changed",
    "solved": "the tasks are solved by all answers, or none is",
}


def _zero_for(wanted: str, metric: Metric) -> int:
    values = metric.curve.values
    if wanted == "zero_std_share":
        return lasting(values >= ALL_GROUPS)
    return lasting(np.abs(values) <= max(TINY, metric.off_by))


def _is_sudden(metric: Metric, count: int) -> bool:
    values = metric.curve.values
    before = float(np.median(values[:-count][-BEFORE:]))
    if values.max() <= 1 and (values[-count:] >= ALL_GROUPS).all():
        return before < 1 - ABRUPT
    return before > ABRUPT * float(np.abs(values).max())


def _policy_loss(run: Run) -> tuple[str, ...]:
    metric = run.metric("policy_loss")
    return (metric.name,) if metric is not None and abs(metric.curve.values[-1]) <= max(TINY, metric.off_by) else ()
