"""The wait-for graph: which rank waits for which, over all groups and point-to-point operations at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from diagd.daemon.detectors.backend import unfinished_tail
from diagd.daemon.detectors.ledger import Ledger
from diagd.daemon.detectors.pairing import is_surplus
from diagd.daemon.detectors.position import Wait, is_stopped, waits_of
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Operation

_SERVER_GONE = ("remote server shutdown", "Connection was likely closed")  # torch's words
SEEN_LATE_S = 0.5  # an exit is seen so late, at most
ENDS_WITHIN_S = 3.0  # with torch, an interpreter's shutdown takes seconds


@dataclass(slots=True)
class Graph:
    """Waits of each rank, and for each rank the ranks it waits for."""

    waits: dict[int, tuple[Wait, ...]] = field(default_factory=dict)
    edges: dict[int, frozenset[int]] = field(default_factory=dict)
    for_whom: dict[tuple[int, int], Wait] = field(default_factory=dict)  # (waiting, waited for) -> the wait

    def wait(self, rank: int) -> Wait | None:
        """The rank's first wait."""
        found = self.waits.get(rank, ())
        return found[0] if found else None

    def waiting_for(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """All ranks that wait for one of these, directly or through others; not these themselves."""
        aims = set(ranks)
        reached, grown = set(aims), True
        while grown:
            more = {r for r, out in self.edges.items() if r not in reached and out & reached}
            reached |= more
            grown = bool(more)
        return tuple(sorted(reached - aims))


def graph_of(state: JobState, ledger: Ledger) -> Graph:
    """Build the graph from where all ranks stand."""
    graph = Graph()
    everyone = range(state.world_size)
    for rank in everyone:
        graph.waits[rank] = waits_of(state, rank) if rank in state.details else ()
    for rank in everyone:
        out: set[int] = set()
        if is_stopped(state, rank):  # whatever it waits for: it cannot go on before it is continued
            graph.edges[rank] = frozenset()
            continue
        for wait in graph.waits[rank]:
            for other in _waited_for(state, ledger, graph, wait):
                out.add(other)
                graph.for_whom.setdefault((rank, other), wait)
        graph.edges[rank] = frozenset(out)
    _bind_batches(graph)
    if state.from_dumps:
        _bind_streams(state, graph)
    return graph


def _bind_streams(state: JobState, graph: Graph) -> None:
    """A device works its operations off in order: who has all members in his operation waits for those before it.

    Such a member has entered it too, and stands in another that comes first on its device.
    """
    first = {rank: waits[0] for rank, waits in graph.waits.items() if waits}
    for rank in [r for r, wait in first.items() if wait.kind == "collective" and not graph.edges[r]]:
        wait = first[rank]
        for other in wait.members:
            place = _place(first[other]) if other in first else _place(wait)
            behind = place != _place(wait) and "gloo" not in state.detail(other).backend
            if behind and any(_place_of(op) == _place(wait) for op in unfinished_tail(state.detail(other))):
                graph.edges[rank] |= {other}
                graph.for_whom.setdefault((rank, other), wait)


def _place(wait: Wait) -> tuple[str, str, int]:
    return _place_of(wait.op)


def _place_of(op: Operation) -> tuple[str, str, int]:
    return op.group, "p2p" if op.p2p else "", op.seq


def _bind_batches(graph: Graph) -> None:
    """The device starts a batch of sends and receives as one: who is in it waits for what its partner waits for."""
    grown = True
    while grown:
        grown = False
        for rank, waits in graph.waits.items():
            for wait in waits if not graph.edges[rank] else ():
                if wait.kind == "p2p" and wait.op.source != "probe" and graph.edges.get(wait.op.peer):
                    graph.edges[rank] |= {wait.op.peer}
                    graph.for_whom[rank, wait.op.peer] = wait
                    grown = True


def _waited_for(state: JobState, ledger: Ledger, graph: Graph, wait: Wait) -> list[int]:
    if wait.kind == "p2p":
        return _partners(state, graph, wait)
    if wait.kind == "creation":
        return _not_creating(state, graph, wait)
    if wait.kind == "collective":
        others = [m for m in wait.members if m != wait.rank]
        return [m for m in others if _absent(state, ledger, graph, wait, m)]
    return _host_that_left(state, wait) if wait.kind == "store" else []


def _host_that_left(state: JobState, wait: Wait) -> list[int]:
    """The rank that ended as the store's server was gone: it ends with the process that made it."""
    op = wait.op
    if op.returned_s is None or not any(said in op.failed for said in _SERVER_GONE):
        return []
    ends = {d.rank: d.in_shutdown_s or (d.exit.at_s if d.exit is not None else None) for d in state.details.values()}
    near = {
        rank: abs(op.returned_s - at_s) for rank, at_s in ends.items()
        if at_s is not None and at_s <= op.returned_s + SEEN_LATE_S and rank != wait.rank
    }  # fmt: skip
    host = min(near, key=lambda rank: near[rank], default=None)
    return [host] if host is not None and near[host] <= ENDS_WITHIN_S else []


def _absent(state: JobState, ledger: Ledger, graph: Graph, wait: Wait, other: int) -> bool:
    """Whether the other rank keeps this wait from ending: it never entered, or entered and can no longer take part."""
    if is_stopped(state, other):
        return True  # whether it has entered or not
    if wait.op.seq > 0:
        entered = ledger.entered(wait.op.group, other) >= wait.op.seq
    else:  # an operation that the backend does not count (monitored_barrier): it must be in one too
        entered = any(w.op.name == wait.op.name and w.op.group == wait.op.group for w in graph.waits.get(other, ()))
    if not entered:
        return not state.why_not_known(other, wait.op.group)
    if not state.status(other).gone:
        return False
    # It ended inside the group's operations, of which several may be under way: its end may be a consequence of theirs.
    return not any(w.op.group == wait.op.group for w in graph.waits.get(other, ()))


def _partners(state: JobState, graph: Graph, wait: Wait) -> list[int]:
    """The partner of a send or recv, unless it stands in the matching operation itself."""
    op, other = wait.op, wait.op.peer
    if other < 0:
        return _any_of(state, graph, [m for m in wait.members if m != wait.rank])
    if state.why_not_known(other, op.group):
        return []
    wanted = "RECV" if op.name == "SEND" else "SEND"
    for theirs in state.detail(other).operations:
        matches = theirs.name == wanted and theirs.peer in (wait.rank, -1) and theirs.group == op.group
        if matches and theirs.tag == op.tag and not state.status(other).gone and not is_stopped(state, other):
            return [other] if is_surplus(state, wait.rank, other, op) else []
    return [] if _meets_in_backend(state, wait, wanted) and not is_stopped(state, other) else [other]


def _any_of(state: JobState, graph: Graph, others: list[int]) -> list[int]:
    """Of ranks any one of which may end the wait: not those that are gone, as long as another goes its own way."""
    there = [
        other for other in others if not state.status(other).gone and state.detail(other).in_shutdown_s is None
    ]  # fmt: skip
    return there if any(not graph.waits.get(other) and not is_stopped(state, other) for other in there) else others


def _meets_in_backend(state: JobState, wait: Wait, wanted: str) -> bool:
    """Whether the partner's flight recorder has the matching operation unfinished too.

    Those of two ranks pair up in their order, and each with one of its own size.
    """
    op = wait.op
    mine = [
        o for o in unfinished_tail(state.detail(wait.rank)) if (o.name, o.peer, o.group) == (op.name, op.peer, op.group)
    ]
    theirs = [
        o for o in unfinished_tail(state.detail(op.peer))
        if o.name == wanted and o.peer in (wait.rank, -1) and o.group == op.group
    ]  # fmt: skip
    first = sum(o.seq < op.seq for o in mine)
    of_one_batch = max(sum(o.seq == op.seq for o in mine), 1)
    pairs = list(zip(mine[first:], theirs[first : first + of_one_batch], strict=False))
    return len(pairs) >= of_one_batch and all(a.numel == b.numel or min(a.numel, b.numel) < 0 for a, b in pairs)


def _not_creating(state: JobState, graph: Graph, wait: Wait) -> list[int]:
    """The ranks that have not joined the creation of this group (every rank of the job must)."""
    mine = state.detail(wait.rank).group_count
    missing = []
    for other in sorted({*range(state.world_size), *state.candidates}):
        theirs = graph.waits.get(other, ())
        if other == wait.rank:
            continue
        if wait.op.name == "INIT":
            joined = any(w.op.name == "INIT" for w in theirs) or bool(state.detail(other).groups)
        else:
            joined = state.detail(other).group_count >= mine
        if not joined or state.status(other).gone:
            missing.append(other)
    return missing


def sinks(edges: Mapping[int, frozenset[int]]) -> list[tuple[int, ...]]:
    """The strongly connected components that wait for nothing outside themselves, each sorted.

    Every rank's wait ends in one of them, so they hold the causes. Tarjan's algorithm, without recursion.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    component: dict[int, int] = {}
    members: list[list[int]] = []
    for start in edges:
        if start in index:
            continue
        work = [(start, iter(sorted(edges[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, out = work[-1]
            for other in out:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(edges.get(other, ())))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found = []
                    while True:
                        other = stack.pop()
                        on_stack.discard(other)
                        component[other] = len(members)
                        found.append(other)
                        if other == node:
                            break
                    members.append(found)
    leaving = {component[n] for n, out in edges.items() for o in out if component[o] != component[n]}
    return sorted(tuple(sorted(m)) for i, m in enumerate(members) if i not in leaving)


def cycle_in(edges: Mapping[int, frozenset[int]], ranks: tuple[int, ...]) -> tuple[int, ...]:
    """One shortest circle through the lowest rank of a component, for printing; empty where there is none."""
    inside, start = set(ranks), ranks[0]
    paths = [[start]]
    seen = {start}
    while paths:
        path = paths.pop(0)
        for other in sorted(edges.get(path[-1], frozenset()) & inside):
            if other == start:
                return tuple(path)
            if other not in seen:
                seen.add(other)
                paths.append([*path, other])
    return ()
