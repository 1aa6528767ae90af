"""Host memory that will run out, whether or not a leak is behind it."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.grows import RSS, Grows
from diagd.daemon.detectors.memory import GIB, Forecast, Room, nearest, newest, node_of, size_text
from diagd.daemon.detectors.memory_host import slopes_at
from diagd.daemon.state.job import JobState

KIND = "memory.oom_risk"
FARTHEST = 1.0  # of what was seen: without a leak, growth is not believed to go on for longer than it has
CLOSE_STEPS = 200
CLOSE_S = 600.0
LITTLE_PART = 0.02  # of the limit is left
LITTLE_BYTES = GIB
TWICE = 2  # samples of what is left, 5 s apart


def host_oom(state: JobState, grows: list[Grows], leaking: set[int]) -> Iterator[Finding]:
    """One finding for each node on which memory runs out, other than by a leak that was named."""
    nodes: dict[str, list[int]] = {}
    for rank in state.signals.ranks("memory/available"):
        if not state.status(rank).gone:
            nodes.setdefault(node_of(state, rank), []).append(rank)
    for node, ranks in nodes.items():
        if leaking.intersection(ranks):
            continue
        mine = [one for one in grows if one.rank in ranks]
        found = _by_growth(state, mine, slopes_at(state, grows, ranks[0])) if mine else None
        found = found or _by_little(state, ranks, node)
        if found is not None:
            yield found


def _by_growth(state: JobState, mine: list[Grows], slopes: float) -> Finding | None:
    each = []
    for one in mine:
        found = nearest(state, one.rank, one.growth, max(slopes - one.growth.slope, 0.0), own=one.what == RSS)
        if found is not None:
            each.append((one, *found))
    if not each:
        return None
    first, ahead, room = min(each, key=lambda one: (one[1].steps, -one[0].growth.slope))
    if not ahead.near or ahead.steps > FARTHEST * first.growth.steps or _ends_before(first, ahead):
        return None
    ranks = tuple(sorted({one.rank for one in mine})) if not room.own_limit else _alike(each, first.rank)
    pace = first.growth.slope if room.own_limit else slopes
    summary = f"memory runs out {ahead.text}: {words.ranks_text(ranks)} {words.verb(ranks, 'grows', 'grow')} by"
    summary += f" {size_text(pace)} a step, and {room.text}"
    close = ahead.steps <= CLOSE_STEPS or ahead.seconds <= CLOSE_S
    grown = f"it has grown by {size_text(first.growth.grown)} since step {first.growth.since}"
    cause = Cause(
        "grows", "what the job holds grows with its steps", 0.7, Basis.INFERENCE,
        (Evidence(grown, "kernel", first.rank),),
    )  # fmt: skip
    return _finding(ranks, summary, cause, first.growth.since, Severity.CRITICAL if close else Severity.WARNING)


def _alike(each: list[tuple[Grows, Forecast, Room]], first: int) -> tuple[int, ...]:
    """The ranks that come to limits of their own, soon."""
    return tuple(sorted({first, *(one.rank for one, ahead, room in each if room.own_limit and ahead.near)}))


def _ends_before(one: Grows, ahead: Forecast) -> bool:
    """Whether a container with an end of its own, or a cache of the data, is full before the memory is."""
    data, held = one.loader, one.holder
    if held is not None and held.most > 0 and held.grew > 0:
        return (held.most - held.size) * held.steps / held.grew < ahead.steps
    if not one.ends or data is None or data.length <= 0:
        return False
    return one.growth.until + ahead.steps > data.length


def _by_little(state: JobState, ranks: list[int], node: str) -> Finding | None:
    """Almost nothing is left, seen twice, whatever took it."""
    left = state.signals.series(ranks[0], "memory/available")
    limit = newest(state, ranks[0], "memory/limit")
    if left is None or not limit or len(left) < TWICE:
        return None
    most = float(left.values[-TWICE:].max())
    if most > min(LITTLE_PART * limit, LITTLE_BYTES):
        return None
    held = {rank: newest(state, rank, "memory/rss") or 0.0 for rank in ranks}
    largest = max(held, key=lambda rank: held[rank])
    summary = (
        f"{size_text(most)} of {size_text(limit)} are left on {node or 'the node'}: the next step that needs more is"
    )
    summary += f" killed; the largest is rank {largest} with {size_text(held[largest])}"
    cause = Cause(
        "little", "the job needs as much memory as there is", 0.85, Basis.RESEARCH,
        (Evidence(f"{size_text(most)} at most were left in the last {TWICE} looks", "kernel", ranks[0]),),
    )  # fmt: skip
    return _finding(tuple(ranks), summary, cause, None, Severity.WARNING)


def _finding(ranks: tuple[int, ...], summary: str, cause: Cause, step: int | None, severity: Severity) -> Finding:
    return Finding(
        kind=KIND,
        severity=severity,
        ranks=ranks,
        summary=words.shortened(summary),
        causes=(cause,),
        names=("rss",),
        step=step,
        sure=True,
        goes_on=True,
        key="host",
    )
