"""All rules about what a training learns."""

from collections.abc import Callable, Iterable

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training import (
    clamp,
    codebook,
    diverging,
    gap,
    misused,
    plateau,
    policy,
    representation,
    rewards,
    shares,
    spike,
    terms,
    unbounded,
)

TRAINING: tuple[Callable[[Scene], Iterable[Finding]], ...] = (
    spike.spikes,
    diverging.divergence,
    misused.misused,
    unbounded.unbounded,
    plateau.plateaus,
    policy.outputs,
    representation.collapse,
    rewards.kl,
    rewards.advantages,
    codebook.collapse,
    clamp.clamps,
    terms.terms,
    gap.generalization_gap,
    shares.parameter_share,
)
