"""Gradients that are exactly zero at every step: of what passes on nothing, or of numbers too small for a dtype."""

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.numerics.counted import LATER, SHARE, Counts, Dead
from diagd.daemon.detectors.numerics.weights import is_besides, is_expert
from diagd.daemon.detectors.training.curves import curve_of
from diagd.daemon.detectors.training.rewards import teach_nothing

LONG = 8  # counts in a row, where it is meant to be so at first
FLOAT16 = 2  # in autocast/on


def zero(counts: Counts) -> Dead | None:
    """A good part of what is to train has gradients that are exactly zero, always."""
    dead_, owned = counts.always("zero_gradient", LATER), counts.last("owned")
    names, much = counts.names("zero_gradient"), counts.always("elements_zero_gradient", LATER) >= SHARE
    if not dead_ or (dead_ < SHARE * owned[-1] and not much) or (names and all(map(is_expert, names))):
        return None
    if names and all(is_expert(n) or is_besides(n) for n in names) and not counts.always("zero_gradient", LONG):
        return None  # a half of an adapter begins at zero on purpose, and the other half with it
    if teach_nothing(counts.scene):
        return None
    text = (
        f"the gradients of {dead_:.0f} of {owned[-1]:.0f} parameters are exactly zero at every step:"
        f" {', '.join(names[:3])}"
    )
    if not counts.scene.state.signals.series(counts.rank, "scaler/scale") and (
        _is_computed_in_half(counts) or _is_sent_in_half(counts)
    ):
        return _flushed(counts, names, text)
    limits = curve_of(counts.scene.state.signals.series(counts.rank, "clip_norm/limit")).values[-LATER:]
    if len(limits) and not limits.any():
        return _clipped_away(counts, names, text)
    return Dead(
        "zero", Severity.WARNING, text, "what follows them passes on nothing: dead units, a factor of zero, a clamp",
        names, counts.since("zero_gradient"), 0.85, (f"gradients of norm 0 so far: {', '.join(names)}",),
    )  # fmt: skip


def _clipped_away(counts: Counts, names: tuple[str, ...], text: str) -> Dead:
    return Dead(
        "clip limit", Severity.CRITICAL, f"{text}; clip_grad_norm_ is called with max_norm 0, which leaves nothing",
        "clip_grad_norm_ multiplies by the limit over the norm: 0 does not switch it off",
        ("clip_grad_norm_", "max_norm", *names), counts.since("zero_gradient"), 0.95,
        ("gradients are clipped to a norm of 0",),
    )  # fmt: skip


def _is_computed_in_half(counts: Counts) -> bool:
    """Whether the rank computes in float16: what is below 6e-8 is 0 then."""
    cast = counts.scene.state.signals.series(counts.rank, "autocast/on")
    return cast is not None and bool(cast.values[-1] == FLOAT16)


def _is_sent_in_half(counts: Counts) -> bool:
    """Whether the gradients of float32 parameters are float16's numbers."""
    half = counts.scene.state.signals.series(counts.rank, "gradients/half")
    return half is not None and len(half) >= LATER and bool(half.values[-LATER:].all())


def _flushed(counts: Counts, names: tuple[str, ...], text: str) -> Dead:
    where = (
        "the forward pass is in float16" if _is_computed_in_half(counts) else "all gradients have come through float16"
    )
    return Dead(
        "flushed", Severity.WARNING, f"{text}; {where}, and no GradScaler scales the loss",
        "float16 has no numbers below 6e-8 (2^-24): gradients that are smaller are 0 there, and with them all that lies"
        " before; a factor of 0 behind the named layers would show alike", (*names[:18], "float16", "grad_scaler"),
        counts.since("zero_gradient"), 0.7, (f"gradients of norm 0 so far: {', '.join(names)}",), "precision.underflow",
    )  # fmt: skip
