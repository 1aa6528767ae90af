"""How these rules make a finding."""

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity


def finding(
    kind: str,
    severity: Severity,
    ranks: tuple[int, ...],
    summary: str,
    cause: Cause,
    *,
    names: tuple[str, ...],
    step: int,
    key: str = "",
    locations: tuple[Location, ...] = (),
) -> Finding:
    """A fault that the run goes on with, from series in which it has lasted for many steps already."""
    return Finding(
        kind, severity, ranks, words.shortened(summary), (cause,), names=names, step=step, sure=True, goes_on=True,
        key=key or kind, locations=locations,
    )  # fmt: skip


def cause(key: str, text: str, confidence: float, *evidence: Evidence, basis: Basis = Basis.INFERENCE) -> Cause:
    """A cause whose confidence never exceeds what its basis allows."""
    return Cause(key, text, min(confidence, basis.ceiling), basis, evidence)


def seen(what: str, rank: int | None = None, step: int | None = None, source: str = "signals") -> Evidence:
    """One fact read from a series."""
    return Evidence(what, source, rank, step)
