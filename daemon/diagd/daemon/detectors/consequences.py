"""Which findings about what a training computes follow from which others: the deepest cause is told, and it alone.

Whose rank shows it does not count: what one rank computes reaches the others through what they exchange. Gradients that
are never cleared are told beside the explosion that they bring: the one says what to do, the other how bad it is.
"""

from collections.abc import Iterable
from dataclasses import replace

from diagd.daemon.detectors.finding import Finding, Severity

# Kind -> kinds, or families, that follow from it.
FOLLOW: dict[str, tuple[str, ...]] = {
    "precision.stale_cache": ("training.kl_zero", "training.loss_plateau", "training.dead_parameters"),
    "precision.overflow": (
        "numerics.nonfinite", "numerics.gradient_explosion", "training.loss_spike", "training.loss_divergence",
        "training.loss_plateau",
    ),
    "precision.underflow": ("training.dead_parameters", "training.loss_plateau"),
    "numerics.nonfinite": ("numerics.gradient_", "training.loss_", "training.dead_parameters"),
    "numerics.gradient_explosion": ("training.loss_spike", "training.loss_divergence"),
    "numerics.gradient_vanishing": (
        "training.dead_parameters", "training.loss_plateau", "precision.underflow", "numerics.gradient_imbalance",
    ),
    "numerics.gradient_imbalance": ("training.loss_plateau",),
    "training.lr_fault": (
        "training.dead_parameters", "training.loss_plateau", "training.loss_divergence", "precision.underflow",
    ),
    "training.dead_parameters": ("training.loss_plateau",),
    "training.codebook_collapse": ("training.loss_spike", "training.loss_divergence", "training.loss_plateau"),
}  # fmt: skip
# Likewise by the key of the cause.
FOLLOW_CAUSE: dict[tuple[str, str], tuple[str, ...]] = {
    ("training.lr_fault", "negative"): ("numerics.gradient_explosion", "training.loss_spike"),
}
# And what explains nothing of what is trained, as nothing that is trained reads it.
BESIDE = frozenset({
    ("numerics.nonfinite", "buffer"), ("precision.overflow", "buffer"), ("precision.underflow", "counter"),
})  # fmt: skip


def without_consequences(found: Iterable[Finding]) -> list[Finding]:
    """The findings that no other one explains; each with what follows from it, which may have been told before."""
    all_ = list(found)
    explained = tuple({follower for finding in all_ for follower in _followers(finding)})
    left = [finding for finding in all_ if not (explained and finding.kind.startswith(explained))]
    return [replace(finding, explains=(*finding.explains, *_followers(finding))) for finding in left]


def _followers(finding: Finding) -> tuple[str, ...]:
    keys = [(finding.kind, cause.key) for cause in finding.causes]
    if finding.severity is Severity.INFO or (keys and BESIDE.issuperset(keys)):
        return ()
    return FOLLOW.get(finding.kind, ()) + tuple(kind for key in keys for kind in FOLLOW_CAUSE.get(key, ()))
