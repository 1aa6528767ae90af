"""A policy that is kept random: its entropy stays the largest there is, ln of the number of actions, and nothing else.

That is how a run begins, and how one goes on whose rewards are rare. It is a fault where the loss is all entropy: the
term that should keep a policy from certainty too early outweighs what it is to learn.
"""

from math import exp, log

import numpy as np

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.training.curves import Curve, figure
from diagd.daemon.detectors.training.run import Metric, Run
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.detectors.training.sums import fit

LEAST = 150  # samples
NEAR = 0.015  # of ln k, all the time
MOST_ACTIONS = 32  # beyond, the logarithms lie too close to be told apart
OUTWEIGHS = 0.8  # of the loss
SURE = 4.0  # standard errors


def uniform(run: Run, entropy: Metric) -> Finding | None:
    """Of the first entropy that is logged."""
    values, reward = entropy.curve.values, run.metric("reward")
    actions = round(exp(min(float(values.max()), 10.0)))
    if len(values) < LEAST or not 2 <= actions <= MOST_ACTIONS or reward is None or _gains(reward.curve):
        return None
    most = log(actions)
    if (np.abs(values - most) > NEAR * most).any() or values[-1] < values[0] - NEAR * most / 2:
        return None
    share = _share(run)
    if share is None or share < OUTWEIGHS:
        return None
    text = (
        f"{entropy.name} has stayed at {figure(float(np.median(values)))}, that of {actions} actions at random (ln"
        f" {actions} = {most:.3f}), for {len(values)} samples, and {reward.name} gains nothing; the entropy term makes"
        f" up {share:.0%} of the loss"
    )
    why = cause("outweighs", "the entropy term outweighs what the policy is to learn: it is summed where the others are"
                " means, or its weight is too large", 0.7,
                seen(f"{reward.name} {figure(reward.curve.begin())} at first, {figure(reward.curve.values[-1])} now",
                     reward.rank),
                seen(f"the logged terms add up to the loss, {share:.0%} of it entropy", entropy.rank))  # fmt: skip
    return finding("training.entropy_explosion", Severity.WARNING, run.ranks, text, why,
                   names=(entropy.name, "entropy", reward.name), step=entropy.curve.last_step)  # fmt: skip


def _gains(reward: Curve) -> bool:
    """Whether the last third is better than the first, but for noise; also where too little is known."""
    third = len(reward.values) // 3
    if third < LEAST // 6:
        return True
    first, last = reward.values[:third], reward.values[-third:]
    return bool(last.mean() - first.mean() > SURE * float(np.hypot(first.std(), last.std())) / third**0.5)


def _share(run: Run) -> float | None:
    """How much of the logged loss is the entropy term, in the middle; None where that cannot be told."""
    total, parts = run.metric("loss"), [m for m in run.metrics("loss_part") if m.rank == run.ranks[0]]
    fitted = fit(total, parts) if total is not None else None
    if fitted is None:
        return None
    parts_of = np.median(np.abs(fitted.values * fitted.weights), axis=0)
    mine = sum(float(share) for one, share in zip(fitted.metrics, parts_of, strict=True) if "entropy" in one.words)
    return mine / max(float(parts_of.sum()), 1e-30)
