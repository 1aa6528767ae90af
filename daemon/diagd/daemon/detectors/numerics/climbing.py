"""A warm-up that has no end: the rate goes through the one that was configured, and on."""

import numpy as np

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.numerics.odd_rate import Odd
from diagd.daemon.detectors.training.curves import Curve, curve_of, figure
from diagd.daemon.state.job import JobState

LEAST = 16  # rates that were told
FROM, TIMES = 0.5, 2.0  # of the configured rate: it begins below so much; of what it may become: it is above by now
STEADY = 0.5  # of the slope up to the configured rate: what it still rises by


def climbing(state: JobState, rank: int, curve: Curve) -> Odd | None:
    """A factor that was to lead up to 1 goes on as it came.

    Only of schedules that are functions of the script's own: torch's cycles are made to go above where they begin. A
    rate that is to grow with the number of ranks (arXiv:1706.02677) goes up to so many times the configured one.
    """
    fact = state.signals.fact(rank, "lr/scheduler")
    told = curve_of(state.signals.series(rank, "lr/initial"))
    if fact is None or not fact[1].startswith("LambdaLR") or not len(told.values) or len(curve.values) < LEAST:
        return None
    configured, now = float(told.values[-1]), float(curve.values[-1])
    enough = TIMES * max(state.world_size, 1) * configured  # a factor may lead up to the number of ranks
    if curve.values[0] > FROM * configured or now < enough or (np.diff(curve.values) < 0).any():
        return None
    at = int(np.searchsorted(curve.values, configured))
    if not 0 < at < len(curve.values) - 1 or _slope(curve, at, -1) < STEADY * _slope(curve, 0, at):
        return None
    step = int(curve.steps[at])
    text = (
        f"the learning rate goes on rising: it reached the configured {figure(configured)} at step {step}, and is"
        f" {figure(now)} by now"
    )
    why = "the factor of the warm-up has no upper end: min(1, step / warmup) is meant, and the rest of the schedule"
    return Odd("climbs", Severity.WARNING, text, why, step, 0.8)


def _slope(curve: Curve, since: int, until: int) -> float:
    return float(curve.values[until] - curve.values[since]) / float(curve.steps[until] - curve.steps[since])
