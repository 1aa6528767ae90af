"""Shared memory, through which data workers hand over their batches: a write beyond its end is a bus error."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.growth import MIB, Growth, growth
from diagd.daemon.detectors.holding import Holder, holder
from diagd.daemon.detectors.memory import LEAST_BYTES, forecast, newest, node_of, size_text
from diagd.daemon.state.job import JobState

KIND = "memory.shm"
RSS, WRITTEN = "memory/rss", "memory/written"
USED, FREE, INODES = "memory/shm_used", "memory/shm_free", "memory/shm_inodes_free"
LITTLE_PART = 0.1  # of it is free
LITTLE_BYTES = 256 * MIB
FEW_INODES = 1000
LONG_STEPS = 300
INFO_STEPS, INFO_BYTES = 60, 128 * MIB  # a cache in it that is still being filled looks the same
KEPT_STEPS = 60  # nothing in the script's text takes anything out of what holds it
OWN_PART = 0.5  # of the growth, that ranks have mapped themselves
ALIKE = 0.5  # of what the first of them has
OFTEN = 5  # samples, a second apart


def shm(state: JobState) -> Iterator[Finding]:
    """One finding for each node whose shared memory is nearly full, or fills."""
    told: set[str] = set()
    for rank in state.signals.ranks(USED):
        node = node_of(state, rank)
        if node in told or state.status(rank).gone:
            continue
        told.add(node)
        found = _full(state, rank) or _fills(state, rank)
        if found is not None:
            yield found


def _full(state: JobState, rank: int) -> Finding | None:
    used, free = state.signals.series(rank, USED), state.signals.series(rank, FREE)
    if used is None or free is None or min(len(used), len(free)) < OFTEN:
        return None
    most, total = float(free.values[-OFTEN:].max()), float(used.values[-1] + free.values[-1])
    inodes = newest(state, rank, INODES)
    few = inodes is not None and inodes < FEW_INODES
    grew = float(used.values[-1] - used.values.min()) > 0  # what other programs left there is no fault of this job
    if not few and (most > min(LITTLE_PART * total, LITTLE_BYTES) or not grew):
        return None
    what = f"{int(inodes or 0)} more files fit" if few else f"{size_text(most)} of {size_text(total)} are free"
    summary = f"shared memory is nearly full: {what} in /dev/shm; a data worker that needs more dies of a bus error"
    cause = Cause(
        "small" if total < 1024 * MIB else "held",
        "batches on their way from the data workers need more shared memory than there is", 0.85, Basis.RESEARCH,
        (Evidence(f"/dev/shm: {what}", "kernel", rank),),
    )  # fmt: skip
    return _finding((rank,), summary, cause, None, Severity.WARNING)


def _fills(state: JobState, rank: int) -> Finding | None:
    used, free = state.signals.series(rank, USED), newest(state, rank, FREE)
    found = growth(used.steps, used.values, LEAST_BYTES) if used is not None else None
    if found is None or free is None or found.grown < LEAST_BYTES or not (ranks := _whose(state, rank, found)):
        return None
    rank = ranks[0]
    ahead, held = forecast(state, rank, found, free), holder(state, rank)
    kept = held is not None and held.only_grows and found.steps >= KEPT_STEPS
    known = found.steps >= LONG_STEPS or ahead.near or kept
    if not known and (found.steps < INFO_STEPS or found.grown < INFO_BYTES):
        return None
    summary = f"shared memory fills by {size_text(found.slope)} a step since step {found.since}"
    summary += f"; /dev/shm is full {ahead.text}"
    cause = _why(state, ranks, found)
    if held is not None and kept:
        what = "comes from the workers" if newest(state, rank, "memory/workers") else "is shared"
        summary += f"; what {what} is kept in {held.what}"
    severity = Severity.CRITICAL if ahead.near else Severity.WARNING if ahead.within_reach and known else Severity.INFO
    return _finding(ranks, summary, cause, found.since, severity, held if kept else None)


def _why(state: JobState, ranks: tuple[int, ...], found: Growth) -> Cause:
    rank = ranks[0]
    seen = Evidence(f"/dev/shm held {size_text(found.before)} and now holds {size_text(found.now)}", "kernel", rank)
    wrote = sum(_rise(state, one, WRITTEN, found.since) for one in ranks)
    if wrote >= OWN_PART * found.grown and not any(newest(state, one, "memory/workers") for one in ranks):
        whose = words.verb(ranks, "its", "their")
        by = Evidence(f"{whose} write calls wrote {size_text(wrote)} meanwhile", "kernel", rank)
        return Cause("written", "files that it writes there are not removed", 0.6, Basis.INFERENCE, (seen, by))
    text = "batches, or storages shared by other means, are kept instead of used up"
    return Cause("held", text, 0.7, Basis.INFERENCE, (seen,))


def _whose(state: JobState, rank: int, found: Growth) -> tuple[int, ...]:
    """The ranks on this node that hold or write more themselves, the first of them most, or else those with processes
    that may write to it.

    None where there is neither: other programs use it, too.
    """
    near = [other for other in state.signals.ranks(USED) if node_of(state, other) == node_of(state, rank)]
    rises = {other: max(_rise(state, other, name, found.since) for name in (RSS, WRITTEN)) for other in near}
    most = max(near, key=lambda other: rises[other])
    alike = [other for other in near if rises[other] >= ALIKE * rises[most] > 0]
    if sum(rises[other] for other in alike) >= OWN_PART * found.grown:
        return (most, *(other for other in alike if other != most))
    names = ("memory/workers", "memory/child_count", "memory/children")
    able = [other for other in near if any(newest(state, other, name) for name in names)]
    kept = [other for other in able if (held := holder(state, other)) is not None and held.only_grows]
    return tuple(kept or able)


def _rise(state: JobState, rank: int, name: str, since: int) -> float:
    """By how much it has risen from its least at these steps on."""
    series = state.signals.series(rank, name)
    values = series.values[series.steps >= since].tolist() if series is not None else []
    return float(values[-1] - min(values)) if values else 0.0


def _finding(
    ranks: tuple[int, ...], summary: str, cause: Cause, step: int | None, severity: Severity, held: Holder | None = None
) -> Finding:
    return Finding(
        kind=KIND,
        severity=severity,
        ranks=tuple(sorted(ranks)),
        summary=words.shortened(summary),
        causes=(cause,),
        names=("shm", held.path) if held is not None else ("shm",),
        locations=tuple(Location(ranks[0], place) for place in held.places) if held is not None else (),
        step=step,
        sure=True,
        goes_on=True,
        key="shm",
    )
