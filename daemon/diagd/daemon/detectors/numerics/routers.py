"""Routers whose gradient is nothing but what rounding leaves: their choice is never learned."""

import numpy as np

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.numerics.counted import Counts, Dead
from diagd.daemon.detectors.numerics.weights import Weight, is_router, weights
from diagd.daemon.detectors.training.curves import figure

SAMPLES = 6
# Of the median of all other matrices' gradients: what sums of float32 that should be 0 come to is 1e-8 to 1e-7 of them.
NOISE = 1e-5


def unlearned(counts: Counts) -> Dead | None:
    """Gates that are constant whatever the router says, as a single chosen probability divided by its own sum is."""
    matrices = [w for w in weights(counts.scene.state, counts.rank) if w.is_matrix]
    routers = [w for w in matrices if is_router(w.name) and len(w.gradient.values) >= SAMPLES]
    others = [float(np.median(w.gradient.values)) for w in matrices if not is_router(w.name) and len(w.gradient.values)]
    if not routers or not others:
        return None
    usual = float(np.median(others))
    still = [w for w in routers if 0 < w.gradient.values.max() < NOISE * usual]
    if not still or len(still) < len(routers):
        return None
    names = tuple(w.name for w in still)
    text = (
        f"the gradient of {', '.join(names[:3])} is rounding noise ({figure(_largest(still))}, where other weights have"
        f" {figure(usual)}): which expert gets a token is never learned"
    )
    return Dead(
        "unlearned router", Severity.WARNING, text,
        "the weights of the chosen experts do not depend on the router: one chosen probability (top 1) that is divided"
        " by the sum of those chosen is always 1",
        names, int(still[0].gradient.steps[0]), 0.85,
        tuple(f"{w.name}: gradient at most {figure(_largest([w]))} in {len(w.gradient.values)} samples" for w in still),
    )  # fmt: skip


def _largest(found: list[Weight]) -> float:
    return max(float(w.gradient.values.max()) for w in found)
