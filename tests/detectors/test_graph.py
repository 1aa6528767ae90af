"""The wait-for graph: its ends, whatever its shape and however the ranks are numbered."""

from itertools import permutations
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.detectors.states import Job, critical, job

from diagd.daemon.detectors.graph import cycle_in, graph_of, sinks
from diagd.daemon.detectors.ledger import ledger_of

Edges = dict[int, frozenset[int]]


@st.composite
def graphs(draw: st.DrawFn) -> Edges:
    size = draw(st.integers(1, 8))
    nodes = st.integers(0, size - 1)
    return {n: frozenset(draw(st.sets(nodes, max_size=3)) - {n}) for n in range(size)}


def reachable(edges: Edges, start: int) -> frozenset[int]:
    seen, todo = {start}, [start]
    while todo:
        for other in edges[todo.pop()]:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return frozenset(seen)


@given(graphs())
def test_an_end_is_a_set_of_ranks_that_reach_each_other_and_no_one_else(edges: Edges) -> None:
    reach = {n: reachable(edges, n) for n in edges}
    expected = {tuple(sorted(reach[n])) for n in edges if all(reach[other] == reach[n] for other in reach[n])}
    assert sinks(edges) == sorted(expected)


@given(graphs())
def test_every_rank_waits_for_some_end(edges: Edges) -> None:
    ends = {r for component in sinks(edges) for r in component}
    assert all(reachable(edges, n) & ends for n in edges)


@given(graphs(), st.randoms(use_true_random=False))
def test_ends_do_not_depend_on_how_ranks_are_numbered(edges: Edges, random: Any) -> None:
    names = list(edges)
    random.shuffle(names)
    renamed = {names[n]: frozenset(names[o] for o in out) for n, out in edges.items()}
    assert sinks(renamed) == sorted(tuple(sorted(names[n] for n in component)) for component in sinks(edges))


@given(graphs())
def test_a_printed_circle_is_one(edges: Edges) -> None:
    for component in sinks(edges):
        path = cycle_in(edges, component)
        assert bool(path) == (len(component) > 1)
        for here, after in zip(path, (*path[1:], *path[:1]), strict=True):
            assert after in edges[here]


def test_a_graph_of_ten_thousand_ranks_needs_no_recursion() -> None:
    chain = {n: frozenset([n + 1]) for n in range(10_000)} | {10_000: frozenset()}
    assert sinks(chain) == [(10_000,)]


def test_who_waits_through_others_waits_too() -> None:
    chain = job(4).receives(0, peer=1).receives(1, peer=2).receives(2, peer=3).report()
    graph = graph_of(chain.state, ledger_of(chain.state))
    assert graph.waiting_for((3,)) == (0, 1, 2)
    assert graph.waiting_for((1,)) == (0,)


# --- culprits, whatever the numbering and the fault


def placed(spec: list[tuple[Any, ...]], order: tuple[int, ...], groups: dict[str, tuple[int, ...]]) -> Job:
    """A job where rank order[n] does what spec[n] says, and groups are renumbered alike."""
    renamed = {name: tuple(sorted(order[r] for r in ranks)) for name, ranks in groups.items()}
    made = job(len(spec), hang_after_s=5, groups=renamed)
    for n, (what, *more) in enumerate(spec):
        rank = order[n]
        if what == "op":
            name, seq, group = more
            made.waits(rank, name, seq=seq, group=group)
        elif what == "recv":
            made.receives(rank, peer=order[(n + more[0]) % len(spec)])
        elif what == "stuck":
            made.outside(rank)
        elif what == "works":
            made.outside(rank).works(rank, "cpu")
        elif what == "stopped":
            made.outside(rank).stopped(rank)
        elif what == "killed":
            made.dies(rank, signal="SIGKILL", ago_s=0.1 + n / 10)  # no two at once
        elif what == "backward":
            made.waits_in_backward(rank, seq=more[0])
        elif what == "key":
            made.wants_key(rank, more[0])
        elif what == "creates":
            made.creates_group(rank, more[0])
        elif what == "aborts":
            made.waits(rank, seq=more[0]).dies(rank, signal="SIGABRT")
        elif what == "left":
            made.dies(rank, code=0, ago_s=0.1 + n / 10)
        elif what == "raises":
            made.raises(rank)
    return made.passes(8)


PLACES = st.one_of(
    st.tuples(st.just("op"), st.sampled_from(["ALLREDUCE", "BARRIER"]), st.integers(4, 5), st.sampled_from(["0", "a"])),
    st.tuples(st.just("recv"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["backward", "aborts"]), st.integers(4, 5)),
    st.tuples(st.just("key"), st.sampled_from(["plan", "go"])),
    st.tuples(st.just("creates"), st.integers(1, 2)),
    st.sampled_from([("stuck",), ("works",), ("stopped",), ("killed",), ("left",), ("raises",)]),
)
GROUPS: dict[str, tuple[int, ...]] = {"a": (0, 1, 2, 3)}


def said(made: Job, order: tuple[int, ...]) -> set[tuple[str, str, tuple[int, ...]]]:
    """What is found, told of the places in the specification instead of ranks."""
    back = {rank: n for n, rank in enumerate(order)}
    return {(f.kind, f.severity.value, tuple(sorted(back[r] for r in f.ranks))) for f in made.find()}


@settings(max_examples=60, deadline=None)
@given(st.lists(PLACES, min_size=4, max_size=4), st.sampled_from(list(permutations(range(4)))))
@example(
    [("op", "BARRIER", 4, "a"), ("backward", 4), ("op", "ALLREDUCE", 4, "a"), ("op", "BARRIER", 4, "0")], (1, 0, 2, 3)
)
@example([("aborts", 5), ("aborts", 5), ("op", "ALLREDUCE", 4, "0"), ("op", "BARRIER", 5, "0")], (0, 1, 3, 2))
def test_culprits_do_not_depend_on_how_ranks_are_numbered(
    spec: list[tuple[Any, ...]], order: tuple[int, ...]
) -> None:  # fmt: skip
    usual = (0, 1, 2, 3)
    assert said(placed(spec, order, GROUPS), order) == said(placed(spec, usual, GROUPS), usual)


@settings(max_examples=60, deadline=None)
@given(st.lists(PLACES, min_size=2, max_size=5))
def test_findings_are_sound_whatever_the_ranks_do(spec: list[tuple[Any, ...]]) -> None:
    usual = tuple(range(len(spec)))
    made = placed(spec, usual, {"a": usual})
    for found in made.find():
        assert found.ranks == tuple(sorted(set(found.ranks)))
        assert found.ranks
        assert not set(found.ranks) & set(found.waiting_ranks)
        assert set(found.ranks) | set(found.waiting_ranks) <= set(usual)
        assert 0 < len(found.summary) <= 300
        assert found.causes
        assert all(cause.evidence and cause.confidence <= 0.95 for cause in found.causes)
        works = any(spec[r] == ("works",) for r in found.ranks) and ("aborts" not in {what for what, *_ in spec})
        assert not (works and found.severity == "critical" and found.kind.startswith(("hang.rank", "slow.")))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.lists(st.sampled_from(["step", "wait", "late", "io"]), min_size=6, max_size=12))
def test_a_job_whose_ranks_all_progress_is_never_critical(world: int, story: list[str]) -> None:
    """Ranks meet again and again; in between one of them may take its time, with some sign of life."""
    alive = job(world, hang_after_s=3)
    for seq, what in enumerate(story, start=1):
        late = seq % world
        alive.goes_on(*range(world)).rest(*range(world))
        if what in ("late", "io"):
            for rank in range(world):
                if rank != late:
                    alive.waits(rank, seq=seq)
            alive.outside(late).works(late, "cpu" if what == "late" else "io")
            for _ in range(3):
                assert critical(alive.passes(2.5).find()) == []
        elif what == "wait":
            for rank in range(world):
                alive.waits(rank, seq=seq)
        else:
            alive.train(*range(world))
        for rank in range(world):
            alive.entered(rank, seq)
        assert critical(alive.passes(1).find()) == []
