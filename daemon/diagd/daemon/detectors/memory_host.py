"""Host memory that a rank, or its data workers, keep more and more of."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import memory_words, words
from diagd.daemon.detectors.finding import Finding, Location, Severity
from diagd.daemon.detectors.grows import CHILD_RSS, RSS, WORKER_RSS, Grows
from diagd.daemon.detectors.growth import Growth, growth
from diagd.daemon.detectors.holding import (
    CACHE,
    EMPTIED,
    KEPT,
    LIMITED,
    TAKEN,
    Holder,
    Loader,
    allocated,
    holder,
    loader,
)
from diagd.daemon.detectors.memory import (
    LEAST_BYTES,
    Forecast,
    growth_of,
    nearest,
    newest,
    node_of,
    since_change,
    worth,
)
from diagd.daemon.state.job import JobState

KIND = "memory.host_leak"
FLOOR, WORKERS, CHILDREN = "memory/floor", "memory/worker_rss", "memory/child_rss"
VIRTUAL, ANSWERS = "memory/virtual", "memory/answers"
# For how many steps it must have grown, by what else is known; without it a cache that fills looks just the same.
MOSTLY = 0.5  # of what is kept are the tensors themselves, and not what their graphs hold
GRAPH_STEPS = 30  # each step's graph is kept: no cache does that
KEPT_STEPS = 60  # nothing in the script's text ever takes anything out
ALONE_STEPS = 120  # on this rank, and not on others that do the same
ALONE_BYTES = 256 * 1024 * 1024
LONG_STEPS = 1000
LONG_PART = 0.5  # of what was held before
EPOCHS = 1.25  # the length of an epoch, and so much more that the end of growth would have shown
FILLS = 0.2  # of the growth, in the address space: less, and what was allocated long ago is being filled
INFO_STEPS = 60
INFO_BYTES = 64 * 1024 * 1024
CACHE_STEPS = 90  # what is looked up by key is a cache most often: known only once it is large, and has no end yet
CACHE_BYTES = 128 * 1024 * 1024
ALIKE = 2.0  # times: two paces that are no farther apart
FLAT = 0.2  # of the slope: a peer that grows less does not grow with it


def growing(state: JobState) -> list[Grows]:
    """All that grows, on all ranks."""
    own = {rank: found for rank in state.signals.ranks(FLOOR) if (found := _of_rank(state, rank)) is not None}
    grows = [_own(state, rank, found) for rank, found in own.items()]
    for rank in state.signals.ranks(WORKERS):
        if not newest(state, rank, "memory/workers"):
            continue
        steps, values = since_change(state, rank, WORKERS, ("memory/worker_first",))
        found = worth(growth(steps, values, LEAST_BYTES))
        if found is not None:
            grows.append(_workers(state, rank, found))
    for rank in state.signals.ranks(CHILDREN):
        steps, values = since_change(state, rank, CHILDREN, ("memory/child_first", "memory/child_count"))
        found = worth(growth(steps, values, LEAST_BYTES))
        if found is not None:
            grows.append(Grows(rank, CHILD_RSS, found, _why_by_length(found, None), ends=False))
    return grows  # also of ranks that have ended: it may be why, and others may still be ending


def _of_rank(state: JobState, rank: int) -> Growth | None:
    """How the rank itself has grown, without what diagd has left behind in it by reading its flight recorder."""
    floor, left = state.signals.series(rank, FLOOR), state.signals.series(rank, ANSWERS)
    if floor is None or left is None or not len(left):
        return growth_of(state, rank, FLOOR)
    told = np.searchsorted(left.steps, floor.steps, side="right")
    theirs = np.concatenate([[0.0], np.maximum.accumulate(left.values)])[told]
    return worth(growth(floor.steps, floor.values - theirs, LEAST_BYTES))


def host_leaks(state: JobState, grows: list[Grows]) -> Iterator[Finding]:
    """One finding for what ranks leak, and one for what their data workers do: ranks that grow alike are one fault."""
    for what in (RSS, WORKER_RSS, CHILD_RSS):
        mine = [one for one in grows if one.what == what]
        alike = _alike([one for one in mine if one.why], mine) or [one for one in mine if _worth_knowing(one)]
        if alike:
            yield _finding(state, alike, slopes_at(state, grows, alike[0].rank))


def _alike(leaks: list[Grows], mine: list[Grows]) -> list[Grows]:
    """The leaks, and what grows at the pace of the first of them, though nobody saw in what; the best known first."""
    if not leaks:
        return []
    first = max(leaks, key=lambda one: (one.why in ("graph", "both", "kept"), one.growth.slope))
    others = [one for one in mine if one is not first and (one.why or (not one.ends and one.holder is None))]
    return [first, *(one for one in others if 1 / ALIKE < one.growth.slope / first.growth.slope < ALIKE or one.why)]


def slopes_at(state: JobState, grows: list[Grows], rank: int) -> float:
    """What all that grows takes of the node's memory at each step, in bytes."""
    node = node_of(state, rank)
    return sum(one.growth.slope for one in grows if node_of(state, one.rank) == node)


def _own(state: JobState, rank: int, found: Growth) -> Grows:
    held, data = holder(state, rank), loader(state, rank)
    ends = _fills(state, rank, found) if held is None else held.ends
    why = _why_own(state, rank, found, held, data)
    return Grows(rank, RSS, found, why, ends, held, data, allocated(state, rank))


def _why_own(state: JobState, rank: int, found: Growth, held: Holder | None, data: Loader | None) -> str:
    if held is not None and held.graph and found.steps >= GRAPH_STEPS:
        return "both" if held.bytes > MOSTLY * found.slope else "graph"
    if held is not None and held.verdict == TAKEN and _outgrows(held, found):
        return "left"
    if held is not None and held.ends:
        return "epoch" if _past_epoch(found, data) and held.verdict == CACHE else ""
    if found.slowing:
        return ""  # what is added to at each step does not slow down, what is filled does
    if held is not None and held.only_grows and found.steps >= KEPT_STEPS:
        return "kept"
    if _fills(state, rank, found):
        return ""
    if found.steps >= ALONE_STEPS and _alone(state, rank, found):
        return "alone"
    return _why_by_length(found, data)


def _outgrows(held: Holder, found: Growth) -> bool:
    """Whether it is too long and too much for a table of what is under way, from which each entry is taken one day."""
    large = found.grown >= max(CACHE_BYTES, LONG_PART * found.before)
    return not held.bounded and found.steps >= CACHE_STEPS and large


def _fills(state: JobState, rank: int, found: Growth) -> bool:
    """Whether it touches for the first time what was allocated before, as a replay buffer made of zeros is filled."""
    series = state.signals.series(rank, VIRTUAL)
    if series is None:
        return False
    mine = series.values[series.steps >= found.since]
    return len(mine) > 1 and float(mine[-1] - mine[0]) < FILLS * found.grown


def _why_by_length(found: Growth, data: Loader | None) -> str:
    if found.slowing:
        return ""
    if _past_epoch(found, data):
        return "epoch"
    unknown = data is None or data.length <= 0
    return "long" if unknown and found.steps >= LONG_STEPS and found.grown >= LONG_PART * found.before else ""


def _past_epoch(found: Growth, data: Loader | None) -> bool:
    """Whether it has grown for longer than once through the data, after which a cache of them would be full."""
    return data is not None and data.length > 0 and found.steps >= max(EPOCHS * data.length, ALONE_STEPS)


def _alone(state: JobState, rank: int, found: Growth) -> bool:
    """Whether others do the same steps and do not grow with it."""
    peers = [other for other in state.signals.ranks(FLOOR) if other != rank and not state.status(other).gone]
    for other in peers:
        series = state.signals.series(other, FLOOR)
        if series is None or not len(series) or series.steps[-1] < found.until - found.steps / 4:
            return False
        recent = series.steps >= found.since
        theirs = growth(series.steps[recent], series.values[recent])
        if theirs is not None and theirs.slope > FLAT * found.slope:
            return False
    return bool(peers)


def _workers(state: JobState, rank: int, found: Growth) -> Grows:
    data = loader(state, rank)
    verdicts = {verdict for _, verdict, _ in data.grown} if data is not None else set()
    kept = KEPT in verdicts and found.steps >= KEPT_STEPS and not found.slowing
    why = "kept" if kept else _why_by_length(found, data)
    ends = KEPT not in verdicts and bool(verdicts & {CACHE, EMPTIED, LIMITED, TAKEN})
    return Grows(rank, WORKER_RSS, found, "" if ends and why != "epoch" else why, ends, None, data)


def _worth_knowing(one: Grows) -> bool:
    if one.ends:
        return _is_large_cache(one)
    return one.growth.steps >= INFO_STEPS and one.growth.grown >= INFO_BYTES


def _is_large_cache(one: Grows) -> bool:
    """Whether it is looked up as a cache is, has no bound, is not of an epoch's data, and large by now."""
    is_cache = one.holder is not None and one.holder.verdict == CACHE and not one.holder.bounded
    of_data = one.loader is not None and one.loader.length > 0
    return is_cache and not of_data and one.growth.steps >= CACHE_STEPS and one.growth.grown >= CACHE_BYTES


def _finding(state: JobState, alike: list[Grows], slopes: float) -> Finding:
    first = alike[0]
    ranks = tuple(sorted({one.rank for one in alike}))
    others = max(slopes - first.growth.slope, 0.0)
    found = nearest(state, first.rank, first.growth, others, own=first.what == RSS)
    ahead = found[0] if found is not None else None
    return Finding(
        kind=KIND,
        severity=_severity(first, ahead),
        ranks=ranks,
        summary=words.shortened(memory_words.summary(ranks, first, ahead)),
        causes=(memory_words.cause(first, ahead),),
        names=memory_words.names(first),
        locations=tuple(Location(first.rank, frame) for frame in first.places),
        step=first.growth.since,
        sure=True,  # eight blocks of samples agree
        goes_on=True,
        key=first.what,
    )


def _severity(one: Grows, ahead: Forecast | None) -> Severity:
    if not one.why:
        return Severity.INFO
    if ahead is not None and ahead.near:
        return Severity.CRITICAL
    large = one.growth.grown >= LONG_PART * one.growth.before
    if one.why == "alone" and not large and one.growth.grown < ALONE_BYTES:
        return Severity.INFO  # in what it is kept, nobody has seen: allocators differ by so much from rank to rank
    return Severity.WARNING if ahead is None or ahead.within_reach or large else Severity.INFO
