"""The first step makes the optimizer's state: whether there is room for it is known before the step is made."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.memory import newest, node_of, size_text
from diagd.daemon.state.job import JobState

HOST, DEVICE = "memory/state_ahead", "memory/device_state_ahead"


def states_ahead(state: JobState) -> Iterator[Finding]:
    """A finding for each node, and each device, whose memory is less than what is about to be made in it."""
    nodes: dict[str, dict[int, float]] = {}
    for rank in state.ranks():
        if needed := _ahead(state, rank, HOST):
            nodes.setdefault(node_of(state, rank), {})[rank] = needed
    for by_rank in nodes.values():
        room = min((left for rank in by_rank if (left := newest(state, rank, "memory/available"))), default=None)
        if room is not None and sum(by_rank.values()) > room:
            yield _finding(state, tuple(sorted(by_rank)), sum(by_rank.values()), room, "host", "rss")
    for rank in state.ranks():
        total = newest(state, rank, "memory/device_total")
        needed = _ahead(state, rank, DEVICE)
        if needed and total:
            taken = newest(state, rank, "memory/device_allocated") or 0.0
            room = total - taken - (newest(state, rank, "memory/device_others") or 0.0)
            if needed > room:
                yield _finding(state, (rank,), needed, max(room, 0.0), "device", "allocated")


def _ahead(state: JobState, rank: int, name: str) -> float:
    """Bytes that the rank's next step will make; 0 where it has made that step."""
    series = state.signals.series(rank, name)
    if series is None or not len(series) or series.steps[-1] <= state.columns.step[rank]:
        return 0.0
    return float(series.values[series.steps == series.steps[-1]].sum())  # of several optimizers


def _finding(state: JobState, ranks: tuple[int, ...], needed: float, room: float, where: str, name: str) -> Finding:
    text = f"the first step of {words.ranks_text(ranks)} makes {size_text(needed)} of optimizer state, and"
    text += f" {size_text(room)} of {where} memory are left: it will run out there"
    seen = tuple(Evidence(f"{size_text(_ahead(state, r, HOST) or _ahead(state, r, DEVICE))} to make", "probe", r)
                 for r in ranks[:4])  # fmt: skip
    cause = Cause("state", "optimizers make their state in their first step, after the first backward pass has fitted",
                  0.85, Basis.RESEARCH, seen)  # fmt: skip
    return Finding(
        kind="memory.oom_risk", severity=Severity.CRITICAL, ranks=ranks, summary=words.shortened(text), causes=(cause,),
        names=(name,), step=1, sure=True, goes_on=True, key=f"state:{where}:{ranks[0]}",
    )  # fmt: skip
