"""Autocast to float16 without a gradient scaler: gradients below its smallest number are 0 (torch's AMP guide).

Worth knowing, and no more: losses in large units lose little by it.
"""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.job import JobState

FLOAT16 = 2.0  # as autocast/on tells it
LEAST = 32  # samples, of which all are in it
SMALLEST = 2.0**-24  # above zero, in float16
SHOWN = 3


def unscaled(scene: Scene) -> Iterator[Finding]:
    """One finding for all ranks that do so from the first step on."""
    state = scene.state
    ranks = tuple(rank for rank in state.signals.ranks("autocast/on") if _is_unscaled(state, rank))
    if not ranks:
        return
    zero = state.signals.fact(ranks[0], "parameters/zero_gradient")
    names = tuple(name for name in (zero[1].split(", ") if zero is not None else ()) if name)[:SHOWN]
    text = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'computes', 'compute')} in float16 by autocast and"
        f" {words.verb(ranks, 'has', 'have')} no gradient scaler: gradients below {SMALLEST:.0e} are 0"
    )
    text += f"; all were of {', '.join(names)} at a step that was looked at" if names else ""
    evidence = (Evidence("autocast to float16 in each step that was looked at, and no GradScaler", "probe", ranks[0]),)
    cause = Cause(
        "flushed", "backward passes through float16 need a loss that is scaled up", 0.6, Basis.RESEARCH, evidence
    )
    yield Finding(
        "precision.underflow", Severity.INFO, ranks, words.shortened(text + "."), (cause,),
        names=("float16", "autocast", "grad_scaler", *names), step=1, sure=True, goes_on=True, key="unscaled",
    )  # fmt: skip


def _is_unscaled(state: JobState, rank: int) -> bool:
    on, rates = state.signals.series(rank, "autocast/on"), state.signals.series(rank, "lr/0")
    scaled = state.signals.series(rank, "scaler/scale") is not None
    return (
        on is not None and rates is not None and not scaled and len(on) >= LEAST and bool((on.values == FLOAT16).all())
    )
