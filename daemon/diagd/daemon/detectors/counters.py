"""Counters in half precision that have come to the last number that they can count to, and statistics that stay."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene

FACT, STANDING = "buffers/stuck", "buffers/standing"
_EXACT = {"bfloat16": 256, "float16": 2048}  # of 8 and 11 bits


def stuck(scene: Scene) -> Iterator[Finding]:
    """One finding for all ranks and counters."""
    found = {rank: fact for rank in scene.state.ranks() if (fact := scene.state.signals.fact(rank, FACT)) is not None}
    if not found:
        return
    ranks, (step, text) = tuple(found), next(iter(found.values()))
    lines = [line.split("\t") for line in text.splitlines()]
    names, dtype = tuple(name for name, _ in lines), lines[0][1]
    end = _EXACT.get(dtype, 0)
    stand = "stand" if names[1:] else "stands"
    said = (
        f"{', '.join(names[:3])} of {words.ranks_text(ranks)} counted up to {end} and {stand} still there: in {dtype},"
        f" {end} + 1 is {end}. What goes by it (a schedule, a warm-up, an average) stands still too"
    )
    why = "a counter was cast to half precision together with its model"
    seen = f"{names[0]} ({dtype}) is {end} at several looks in a row, and rose before"
    evidence = Evidence(seen, "probe", ranks[0], step)
    cause = Cause("counter", why, 0.9, Basis.OBSERVATION, (evidence,))
    yield Finding(
        kind="precision.underflow", severity=Severity.WARNING, ranks=ranks, summary=words.shortened(said),
        causes=(cause,), names=(*names, dtype), step=step, sure=True, goes_on=True, key="counter",
    )  # fmt: skip


def standing(scene: Scene) -> Iterator[Finding]:
    """Likewise of statistics that are written and stay: worth knowing, as those of data that do not change stay too."""
    signals = scene.state.signals
    found = {rank: fact for rank in scene.state.ranks() if (fact := signals.fact(rank, STANDING)) is not None}
    if not found:
        return
    ranks, (step, text) = tuple(found), next(iter(found.values()))
    lines = [line.split("\t") for line in text.splitlines() if line.count("\t") == 2]
    if not lines:
        return
    names, (_, dtype, times) = tuple(name for name, _, _ in lines), lines[0]
    said = (
        f"{', '.join(names[:3])} of {words.ranks_text(ranks)} stay as they are in {dtype}, though written {times} times"
        f" by step {step}: what a step adds is less than half of what two numbers of {dtype} lie apart"
    )
    why = "running statistics were cast to half precision with their model, and can no longer follow what they measure"
    seen = Evidence(f"{names[0]} ({dtype}) was written {times} times and is the same to the last bit", "probe",
                    ranks[0], step)  # fmt: skip
    yield Finding(
        kind="precision.underflow", severity=Severity.INFO, ranks=ranks, summary=words.shortened(said),
        causes=(Cause("statistic", why, 0.8, Basis.OBSERVATION, (seen,)),), names=(*names[:19], dtype), step=step,
        sure=True, goes_on=True, key="statistic",
    )  # fmt: skip
