"""All rules about gradients, updates and learning rates."""

from collections.abc import Callable, Iterable

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.numerics import (
    bare,
    ceased,
    clip_limit,
    clipped,
    dead,
    exploding,
    faded,
    filtered,
    imbalance,
    kept,
    nonfinite,
    outgrown,
    rates,
    saturated,
    silenced,
    skipped,
    spoilt,
    starved,
    undivided,
    unstepped,
    vanishing,
)
from diagd.daemon.detectors.scene import Scene

NUMERICS: tuple[Callable[[Scene], Iterable[Finding]], ...] = (
    nonfinite.nonfinite,
    filtered.filtered,
    skipped.skipped,
    spoilt.spoilt,
    exploding.explosions,
    kept.accumulation,
    kept.discarded,
    kept.stepped_between,
    undivided.undivided,
    vanishing.vanishing,
    faded.faded,
    saturated.saturated,
    ceased.ceased,
    clipped.clipped_scaled,
    clip_limit.turned_round,
    silenced.silenced,
    imbalance.imbalances,
    outgrown.outgrown,
    starved.starved,
    dead.dead,
    bare.bare,
    unstepped.unstepped,
    rates.rates,
)
