"""Routers whose gradient is nothing but what rounding leaves: their choice is never learned."""

import numpy as np

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.numerics.counted import Counts, Dead
from diagd.daemon.detectors.numerics.weights import Weight, is_router, weights
from diagd.daemon.detectors.training.curves import figure

SAMPLES, ZEROS = 6, 12
# Of the median of all other matrices' gradients: what sums of float32 that should be 0 come to is 1e-8 to 1e-7 of them.
NOISE = 1e-5


def unlearned(counts: Counts) -> Dead | None:
    """Gates that are constant whatever the router says, as a single chosen probability divided by its own sum is."""
    held = weights(counts.scene.state, counts.rank)
    # FSDP's shards are flat: there a norm's scale counts as well.
    matrices = [w for w in held if w.is_matrix] or [w for w in held if not w.name.endswith("bias")]
    routers = [w for w in matrices if is_router(w.name) and len(w.gradient.values) >= SAMPLES]
    others = [float(np.median(w.gradient.values)) for w in matrices if not is_router(w.name) and len(w.gradient.values)]
    if not routers or not others:
        return None
    usual = float(np.median(others))
    still = [w for w in routers if w.gradient.values.max() < NOISE * usual and _long_enough(w)]
    if not still or len(still) < len(routers):
        return None
    names = tuple(w.name for w in still)
    noise = f"rounding noise ({figure(_largest(still))}" if _largest(still) > 0 else "exactly zero (at every step"
    text = (
        f"the gradient of {', '.join(names[:3])} is {noise}, where other weights have {figure(usual)}): which expert"
        " gets a token is never learned"
    )
    return Dead(
        "unlearned router", Severity.WARNING, text,
        "the weights of the chosen experts do not depend on the router: one chosen probability (top 1) that is divided"
        " by the sum of those chosen, or a soft-max over it alone, is always 1",
        names, int(still[0].gradient.steps[0]), 0.85,
        tuple(f"{w.name}: gradient at most {figure(_largest([w]))} in {len(w.gradient.values)} samples" for w in still),
    )  # fmt: skip


def _long_enough(weight: Weight) -> bool:
    """Gates in front of experts that begin at zero have no gradient at first."""
    values = weight.gradient.values
    return bool(values.any()) or len(values) >= ZEROS


def _largest(found: list[Weight]) -> float:
    return max(float(w.gradient.values.max()) for w in found)
