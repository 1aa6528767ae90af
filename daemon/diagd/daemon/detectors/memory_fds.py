"""Open files that a rank never closes: one day it cannot open another one, whatever for."""

from collections.abc import Collection, Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.growth import Growth, growth
from diagd.daemon.detectors.holding import loader
from diagd.daemon.detectors.memory import Forecast, forecast, newest
from diagd.daemon.state.job import JobState

KIND = "memory.host_leak"
NAME, COUNT, LIMIT = "fds", "memory/fds", "memory/fd_limit"
KINDS = {"memory/fd_files": "files", "memory/fd_sockets": "sockets", "memory/fd_pipes": "pipes"}
MORE = 64.0  # of them: loaders, loggers, checkpoints and communicators open some tens, and no more with each step
EPOCHS = 1.25  # the length of an epoch, and so much more that files opened when first read would all be open
MOSTLY = 0.5  # of the newest


def descriptors(state: JobState, shared: Collection[int] = ()) -> Iterator[Finding]:
    """One finding for all ranks that hold ever more files open.

    Args:
        shared: Ranks of which it is told that they fill shared memory: each piece of it is an open file as well, which
            is the worse of both only where the limit is near.
    """
    found = {rank: grown for rank in state.signals.ranks(COUNT) if (grown := _grown(state, rank)) is not None}
    if not found or all(state.status(rank).gone for rank in found):
        return
    ranks = tuple(sorted(found))
    ahead = {rank: _ahead(state, rank, found[rank]) for rank in ranks}
    first = min(ranks, key=lambda rank: one.steps if (one := ahead[rank]) is not None else np.inf)
    grown, soon = found[first], ahead[first]
    limit = newest(state, first, LIMIT)
    who = f"{words.ranks_text(ranks)} {words.verb(ranks, 'opens', 'open')} ever more {_what(state, first)}"
    text = (
        f"{who} and {words.verb(ranks, 'closes', 'close')} none: {grown.before:.0f} descriptors at step {grown.since},"
        f" {grown.now:.0f} now, {_rate(grown)}"
    )
    if limit and soon is not None:
        text += f"; at this pace the limit of {limit:.0f} (RLIMIT_NOFILE) is reached {soon.text}"
    severity = _severity(state, first, grown, soon)
    if severity is not Severity.CRITICAL and set(ranks) & set(shared):
        return
    evidence = tuple(
        Evidence(
            f"{found[r].before:.0f} open file descriptors at step {found[r].since}, {found[r].now:.0f} at step"
            f" {found[r].until}", "kernel", r, found[r].until,
        ) for r in ranks[:8]
    )  # fmt: skip
    why = "what is opened is kept, or let go of without being closed; nothing else closes it"
    yield Finding(
        kind=KIND, severity=severity, ranks=ranks, summary=words.shortened(text),
        step=grown.since, causes=(Cause("descriptors", why, 0.8, Basis.OBSERVATION, evidence),),
        names=(NAME, "file descriptors"), sure=True, goes_on=True, key="descriptors",
    )  # fmt: skip


def _grown(state: JobState, rank: int) -> Growth | None:
    """How their number has grown, steadily and up to now; None where it has not."""
    series = state.signals.series(rank, COUNT)
    if series is None:
        return None  # but also of a rank that has ended: it may be why
    found = growth(series.steps, series.values, MORE)
    return found if found is not None and found.grown >= MORE else None


def _ahead(state: JobState, rank: int, found: Growth) -> Forecast | None:
    limit = newest(state, rank, LIMIT)
    return forecast(state, rank, found, limit - found.now) if limit else None


def _severity(state: JobState, rank: int, found: Growth, ahead: Forecast | None) -> Severity:
    """A data set that opens each of its files once looks the same until it has opened them all."""
    data = loader(state, rank)
    fills = data is not None and data.length > 0 and found.steps < EPOCHS * data.length
    if ahead is None or not ahead.within_reach:
        return Severity.INFO
    return Severity.CRITICAL if ahead.near and not fills else Severity.WARNING


def _what(state: JobState, rank: int) -> str:
    """Of which kind the newest are."""
    counts = {said: newest(state, rank, name) or 0.0 for name, said in KINDS.items()}
    kind = max(counts, key=lambda said: counts[said])
    return kind if counts[kind] > MOSTLY * sum(counts.values()) else "files, sockets or pipes"


def _rate(found: Growth) -> str:
    return f"{found.slope:.2g} a step" if found.slope < 1.5 else f"{found.slope:.0f} a step"
