"""Of two kinds of wrong results on the same ranks, the one that explains the other (contract: which of two kinds)."""

from diagd.daemon.detectors.finding import Finding, Severity

# What each kind brings about.
BRINGS: dict[str, tuple[str, ...]] = {
    "precision.stale_cache": ("training.kl_zero", "training.loss_plateau", "training.dead_parameters"),
    "precision.overflow": (
        "numerics.nonfinite", "numerics.gradient_explosion", "training.loss_spike", "training.loss_divergence",
    ),
    "precision.underflow": ("training.dead_parameters", "training.loss_plateau"),
    "numerics.nonfinite": ("numerics.gradient_explosion", "training.loss_spike", "training.loss_divergence"),
    "training.gradient_accumulation": ("numerics.gradient_explosion",),
    "numerics.gradient_explosion": ("training.loss_spike",),
}  # fmt: skip


def explained(finding: Finding, others: list[Finding]) -> bool:
    """Whether one of the others brings it about, and is no guess beside it."""
    return any(
        finding.kind in BRINGS.get(other.kind, ())
        and other.severity != Severity.INFO
        and set(other.ranks) & set(finding.ranks)
        for other in others
    )
