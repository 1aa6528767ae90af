"""Which findings about what a training computes follow from which others: the deepest cause is told, and it alone.

Whose rank shows it does not count: what one rank computes reaches the others through what they exchange. Gradients that
are never cleared are told beside an explosion that they bring, which leads with them and says how bad it has become;
the loss that goes astray with them is no fault of its own.
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
ASTRAY = ("training.loss_spike", "training.loss_divergence", "training.loss_plateau")
WRONG_VALUES = ("divergence.gradient", "divergence.parameter", "numerics.", "training.loss_")
# Likewise by the key of the cause.
FOLLOW_CAUSE: dict[tuple[str, str], tuple[str, ...]] = {
    ("hang.collective_mismatch", "astray"): WRONG_VALUES,
    ("hang.group_cycle", "astray"): WRONG_VALUES,
    ("training.gradient_accumulation", "kept"): ASTRAY,
    ("training.gradient_accumulation", "between"): ASTRAY,
    ("training.gradient_accumulation", "discarded"): ASTRAY,
    ("training.gradient_accumulation", "undivided"): (*ASTRAY, "numerics.gradient_explosion"),
    ("training.gradient_accumulation", "cleared"): ("training.loss_plateau", "training.dead_parameters"),
    ("training.lr_fault", "negative"): ("numerics.gradient_explosion", "training.loss_spike"),
    ("training.lr_fault", "high"): ("numerics.gradient_vanishing", "training.loss_spike"),  # its units are dead
}
# What was seen in the program itself follows from nothing that is computed: it is the cause of that.
UPHILL = ("numerics.gradient_explosion", "training.loss_spike")
FLAT = ("numerics.gradient_vanishing", "numerics.gradient_imbalance")
ROOTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("training.loss_divergence", "scores"): UPHILL,
    ("training.loss_divergence", "clip limit"): UPHILL,
    ("training.loss_plateau", "softmax twice"): FLAT,
    ("training.loss_plateau", "sigmoid before softmax"): FLAT,
    ("training.loss_plateau", "sigmoid twice"): FLAT,
    ("training.loss_plateau", "softmax over samples"): FLAT,
}
# And what explains nothing of what is trained, as nothing that is trained reads it.
BESIDE = frozenset({
    ("numerics.nonfinite", "buffer"), ("precision.overflow", "buffer"), ("precision.underflow", "counter"),
    ("precision.underflow", "statistic"),
})  # fmt: skip


def without_consequences(found: Iterable[Finding]) -> list[Finding]:
    """The findings that no other one explains; each with what follows from it, which may have been told before."""
    all_ = list(found)
    explained = tuple({follower for finding in all_ for follower in _followers(finding)})
    left = [one for one in all_ if not (explained and one.kind.startswith(explained)) or _is_rooted(one)]
    return [replace(one, explains=(*one.explains, *_followers(one)), rooted=_is_rooted(one)) for one in left]


def _is_rooted(finding: Finding) -> bool:
    return bool(ROOTS.keys() & set(_keys(finding)))


def _followers(finding: Finding) -> tuple[str, ...]:
    keys = _keys(finding)
    if finding.severity is Severity.INFO or (keys and BESIDE.issuperset(keys)):
        return ()
    by_cause = tuple(kind for key in keys for kind in FOLLOW_CAUSE.get(key, ()) + ROOTS.get(key, ()))
    return FOLLOW.get(finding.kind, ()) + by_cause


def _keys(finding: Finding) -> list[tuple[str, str]]:
    return [(finding.kind, cause.key) for cause in finding.causes]
