"""Buffers that hold NaN, or in half precision infinities, while the training goes on as if nothing were wrong."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.numerics.nonfinite import nonfinite
from diagd.daemon.detectors.scene import Scene

FACT = "buffers/spoilt"


def spoilt(scene: Scene) -> Iterator[Finding]:
    """One finding for all ranks and buffers; none where losses or gradients are not finite either, which says more."""
    found = {rank: fact for rank in scene.state.ranks() if (fact := scene.state.signals.fact(rank, FACT)) is not None}
    if not found or any(True for _ in nonfinite(scene)):
        return
    ranks, (step, text) = tuple(found), next(iter(found.values()))
    lines = [line.split("\t") for line in text.splitlines()]
    names = tuple(name for name, _, _ in lines)
    _, dtype, what = lines[0]
    overflows = what == "inf"
    held = "infinities" if overflows else "NaN"
    which = f"buffers {', '.join(names[:3])}" if len(names) > 1 else f"buffer {names[0]}"
    said = (
        f"{which} of {words.ranks_text(ranks)} hold{'s' * (len(names) < 2)}"
        f" {held} by step {step}, and did not before; the loss does not show it: evaluation and checkpoints will"
    )
    why = (
        f"what is kept there is larger than {dtype} can hold (65504 in float16)"
        if overflows
        else "a batch or a step that was not finite has come into what is kept there, where it stays"
    )
    cause = Cause("buffer", why, 0.9 if overflows else 0.8, Basis.OBSERVATION,
                  (Evidence(f"{names[0]} ({dtype}) holds {what}", "probe", ranks[0], step),))  # fmt: skip
    yield Finding(
        kind="precision.overflow" if overflows else "numerics.nonfinite", severity=Severity.WARNING, ranks=ranks,
        summary=words.shortened(said), causes=(cause,), names=(*names, *((dtype,) if overflows else ())), step=step,
        sure=True, goes_on=True, key="buffers",
    )  # fmt: skip
