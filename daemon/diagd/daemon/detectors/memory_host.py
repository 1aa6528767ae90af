"""Host memory that a rank, or its data workers, keep more and more of."""

from collections.abc import Iterator
from dataclasses import dataclass

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.growth import Growth, growth
from diagd.daemon.detectors.holding import CACHE, EMPTIED, KEPT, Holder, Loader, holder, loader
from diagd.daemon.detectors.memory import (
    LEAST_BYTES,
    Forecast,
    forecast,
    growth_of,
    newest,
    node_of,
    since_change,
    size_text,
    worth,
)
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Frame

KIND = "memory.host_leak"
RSS, WORKER_RSS = "rss", "worker rss"
FLOOR, WORKERS = "memory/floor", "memory/worker_rss"
# For how many steps it must have grown, by what else is known; without it a cache that fills looks just the same.
GRAPH_STEPS = 30  # each step's graph is kept: no cache does that
KEPT_STEPS = 60  # nothing in the script's text ever takes anything out
ALONE_STEPS = 120  # on this rank, and not on others that do the same
LONG_STEPS = 500
LONG_PART = 0.5  # of what was held before
EPOCHS = 1.1  # the length of an epoch, and a little
INFO_STEPS = 60
INFO_BYTES = 64 * 1024 * 1024
FLAT = 0.2  # of the slope: a peer that grows less does not grow with it


@dataclass(frozen=True, slots=True)
class Grows:
    """One thing that grows on one rank."""

    rank: int
    what: str  # RSS or WORKER_RSS
    growth: Growth
    why: str  # graph, kept, alone, epoch, long; empty: not known to be a leak
    ends: bool  # a cache or a buffer by the script's text
    holder: Holder | None = None
    loader: Loader | None = None

    @property
    def places(self) -> tuple[Frame, ...]:
        """Where it is filled."""
        if self.what == WORKER_RSS:
            kept = [place for _, verdict, place in self.filled if verdict == KEPT]
            return tuple(kept[:2])
        return self.holder.places if self.holder is not None else ()

    @property
    def filled(self) -> tuple[tuple[str, str, Frame], ...]:
        """Containers of the dataset that its methods fill."""
        return self.loader.grown if self.loader is not None else ()


def growing(state: JobState) -> list[Grows]:
    """All that grows, on all ranks."""
    own = {rank: found for rank in state.signals.ranks(FLOOR) if (found := growth_of(state, rank, FLOOR)) is not None}
    grows = [_own(state, rank, found) for rank, found in own.items()]
    for rank in state.signals.ranks(WORKERS):
        if not newest(state, rank, "memory/workers"):
            continue
        steps, values = since_change(state, rank, WORKERS, ("memory/worker_first",))
        found = worth(growth(steps, values, LEAST_BYTES))
        if found is not None:
            grows.append(_workers(state, rank, found))
    return [one for one in grows if not state.status(one.rank).gone]


def host_leaks(state: JobState, grows: list[Grows]) -> Iterator[Finding]:
    """One finding for each rank that leaks, and for what it leaks in; ranks that leak alike are one."""
    groups: dict[tuple[object, ...], list[Grows]] = {}
    for one in grows:
        if one.why or (not one.ends and _worth_knowing(one)):
            path = one.holder.path if one.holder else ""
            groups.setdefault((one.what, one.why, path), []).append(one)
    for alike in groups.values():
        yield _finding(state, alike, slopes_at(state, grows, alike[0].rank))


def slopes_at(state: JobState, grows: list[Grows], rank: int) -> float:
    """What all that grows takes of the node's memory at each step, in bytes."""
    node = node_of(state, rank)
    return sum(one.growth.slope for one in grows if node_of(state, one.rank) == node)


def _own(state: JobState, rank: int, found: Growth) -> Grows:
    held, data = holder(state, rank), loader(state, rank)
    ends = held is not None and held.ends
    return Grows(rank, RSS, found, _why_own(state, rank, found, held, data), ends, held, data)


def _why_own(state: JobState, rank: int, found: Growth, held: Holder | None, data: Loader | None) -> str:
    if held is not None and held.graph and found.steps >= GRAPH_STEPS:
        return "graph"
    if held is not None and held.ends:
        return "epoch" if _past_epoch(found, data) and held.verdict == CACHE else ""
    if held is not None and held.only_grows and found.steps >= KEPT_STEPS:
        return "kept"
    if found.steps >= ALONE_STEPS and _alone(state, rank, found):
        return "alone"
    return _why_by_length(found, data)


def _why_by_length(found: Growth, data: Loader | None) -> str:
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
    why = "kept" if KEPT in verdicts and found.steps >= KEPT_STEPS else _why_by_length(found, data)
    ends = KEPT not in verdicts and bool(verdicts & {CACHE, EMPTIED})
    return Grows(rank, WORKER_RSS, found, "" if ends and why != "epoch" else why, ends, None, data)


def _worth_knowing(one: Grows) -> bool:
    return one.growth.steps >= INFO_STEPS and one.growth.grown >= INFO_BYTES


def _finding(state: JobState, alike: list[Grows], slopes: float) -> Finding:
    first = max(alike, key=lambda one: one.growth.slope)
    ranks = tuple(sorted({one.rank for one in alike}))
    room = newest(state, first.rank, "memory/available")
    ahead = (
        forecast(state, first.rank, first.growth, room, max(slopes - first.growth.slope, 0.0))
        if room is not None
        else None
    )
    return Finding(
        kind=KIND,
        severity=_severity(first, ahead),
        ranks=ranks,
        summary=words.shortened(_summary(ranks, first, ahead)),
        causes=(_cause(first, ahead),),
        names=_names(first),
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
    return Severity.WARNING if ahead is None or ahead.within_reach or large else Severity.INFO


def _names(one: Grows) -> tuple[str, ...]:
    if one.what == WORKER_RSS:
        data = (one.loader.dataset, *(path for path, _, _ in one.filled)) if one.loader else ()
        return (WORKER_RSS, "DataLoader worker", *data)[:20]
    return (RSS, one.holder.path) if one.holder is not None else (RSS,)


def _summary(ranks: tuple[int, ...], one: Grows, ahead: Forecast | None) -> str:
    found = one.growth
    what = f"{words.ranks_text(ranks)} {words.verb(ranks, 'grows', 'grow')}"
    if one.what == WORKER_RSS:
        what = f"the data workers of {words.ranks_text(ranks)} grow"
    text = f"{what} by {size_text(found.slope)} a step since step {found.since}, {size_text(found.grown)} so far"
    text += _in_what(one)
    if not one.why:
        text += ": a leak, or a cache that is still being filled"
    if ahead is not None and (one.why or ahead.near):
        text += f"; at this pace memory runs out {ahead.text}"
    return text


def _in_what(one: Grows) -> str:
    if one.what == WORKER_RSS:
        kept = [path for path, verdict, _ in one.filled if verdict == KEPT]
        data = f", dataset {one.loader.dataset}" if one.loader else ""
        return data + (f", whose {', '.join(kept[:2])} is only ever added to" if kept else "")
    if one.holder is None:
        return ""
    graph = ", and with it the autograd graph of each step" if one.holder.graph else ""
    return f", in {one.holder.what}{graph}"


_WHY = {
    "graph": "tensors that still have their graph are kept from step to step, and with each of them all activations"
    " that its backward pass would need",
    "kept": "a container is added to at each step, and nothing in the script takes anything out of it",
    "alone": "this rank keeps something at each step that the others, which make the same steps, do not",
    "epoch": "it has grown for longer than once through the data, so it is no cache of them",
    "long": "it has grown steadily for hundreds of steps, longer than caches take to fill",
    "": "something is kept at each step; whether it will be let go of is not known yet",
}


def _cause(one: Grows, ahead: Forecast | None) -> Cause:
    seen = one.why in ("graph", "kept") and one.what == RSS
    confidence, basis = (0.9, Basis.OBSERVATION) if seen else (0.7 if one.why else 0.4, Basis.INFERENCE)
    key = f"worker_{one.why}" if one.what == WORKER_RSS and one.why == "kept" else one.why or "unknown"
    return Cause(key, _WHY[one.why], confidence, basis, tuple(_evidence(one, ahead)))


def _evidence(one: Grows, ahead: Forecast | None) -> Iterator[Evidence]:
    found, whose = one.growth, "its data workers together" if one.what == WORKER_RSS else "it"
    yield Evidence(
        f"{whose} held {size_text(found.before)} at step {found.since} and {size_text(found.now)} at step {found.until}"
        f" (anonymous memory{'' if one.what == WORKER_RSS else ' after the step'}; {size_text(found.slow)} to"
        f" {size_text(found.fast)} a step)",
        "kernel", one.rank, found.until,
    )  # fmt: skip
    if one.holder is not None and one.what == RSS:
        held = one.holder
        more = "nodes" if held.kind == "graph" else "elements"
        weight = f" of {size_text(held.bytes * held.steps)} together" if held.bytes > 100_000 else ""
        yield Evidence(f"{held.what}: {held.grew} {more} more{weight} in {held.steps} steps", "probe", one.rank)
        yield from _by_text(held.path, held.verdict, held.places, one.rank)
    for path, verdict, place in one.filled if one.what == WORKER_RSS else ():
        yield from _by_text(path, verdict, (place,), one.rank)
    if ahead is not None:
        yield Evidence(f"at this pace memory runs out {ahead.text}", "kernel", one.rank)


def _by_text(path: str, verdict: str, places: tuple[Frame, ...], rank: int) -> Iterator[Evidence]:
    said = {
        KEPT: "; nothing in the script's text takes anything out of it",
        EMPTIED: "; it is emptied elsewhere in the script's text",
        CACHE: "; it is looked up before it is filled, as a cache is",
    }
    where = " and ".join(words.place_text(place) for place in places) or "a place that was not found"
    if places or verdict in said:
        yield Evidence(f"{path} is filled in {where}{said.get(verdict, '')}", "script", rank)
