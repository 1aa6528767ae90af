"""The cases of torch's own analyzer: what it gets right must come out here too, and on which rank the fault lies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.analyze.written import Entry, as_gloo, call, closing, faults, judged, save, world

MISMATCH = "hang.collective_mismatch"
# The names under which torch's analyzer knows collectives.
COLLECTIVES = (
    "broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "all_gather", "all_gather_single", "all_gather_v",
    "all_reduce", "_all_gather_base", "all_gather_into_tensor_coalesced", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_v", "reduce_scatter_tensor_coalesced", "_reduce_scatter_base", "gather", "scatter", "all_to_all",
    "all_to_all_single", "all_to_all_v_single", "all_reduce_barrier", "barrier", "split", "new_window",
    "allreduce_coalesced", "ALLGATHER_coalesced", "REDUCE_SCATTER_coalesced",
)  # fmt: skip


@pytest.fixture(params=["pickle", "json"])
def look(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[dict[int, Entry]], list[tuple[str, list[int]]]]:
    """Write the dumps in one of both forms, and say what is found."""
    return lambda dumps: faults(judged(save(tmp_path / "dumps", dumps, request.param)))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_that_all_ranks_called_alike_is_no_fault(tmp_path: Path, name: str) -> None:
    dumps = world([call(name, 1)], [call(name, 1)])
    assert faults(judged(save(tmp_path / "nccl", dumps))) == []
    assert faults(judged(save(tmp_path / "gloo", {r: as_gloo(said) for r, said in dumps.items()}))) == []


def test_groups_of_one_name_and_other_members_are_not_compared(look: Any) -> None:
    dumps = world([call("all_reduce", 1), call("all_reduce", 1, group="1")],
                  [call("all_reduce", 1), call("all_reduce", 1, ((5, 5),), group="1")])  # fmt: skip
    for rank in dumps:
        dumps[rank]["pg_config"]["1"] = {"name": "1", "desc": "sub_pg", "ranks": f"[{rank}]"}
    assert look(dumps) == []


@pytest.mark.parametrize("state", ["completed", "scheduled"])
@pytest.mark.parametrize(
    ("odd", "field"),
    [
        (call("all_gather", 2, out=((4, 4), (4, 4), (4, 4))), "operation"),
        (call("all_reduce", 2, ((5, 4),)), "number of elements"),
        (call("all_reduce", 2, ((5, 4),), ((4, 4),)), "number of elements"),
        (call("all_reduce", 2, ((4, 4),), ((5, 4),)), "number of elements"),
        (call("all_reduce", 2, input_dtypes=["Half"], output_dtypes=["Half"]), "dtype"),
    ],
    ids=["type", "size", "input", "output", "dtype"],
)
@pytest.mark.parametrize("guilty", [0, 1, 2])
def test_a_mismatch_names_the_rank_that_differs_also_where_it_is_the_first(
    look: Any, odd: Entry, field: str, state: str, guilty: int
) -> None:
    before = call("all_reduce", 1)
    rest = call("all_reduce", 2, state=state)
    odd = {**odd, "state": state, "retired": rest["retired"],
           "time_discovered_completed_ns": rest["time_discovered_completed_ns"]}  # fmt: skip
    dumps = world(*([before, odd if rank == guilty else rest] for rank in range(3)))
    assert look(dumps) == [(MISMATCH, [guilty])]


def test_the_differing_field_is_named(tmp_path: Path) -> None:
    dumps = world(*([call("all_reduce", 1, ((rank // 2 + 4, 4),), state="started")] for rank in range(3)))
    (incident,) = judged(save(tmp_path / "dumps", dumps)).report["incidents"]
    assert incident["names"] == ["number of elements"]
    assert "float32[5,4]" in incident["summary"]
    assert "float32[4,4]" in incident["summary"]


def test_of_two_ranks_neither_is_in_the_majority(look: Any) -> None:
    assert look(world([call("all_reduce", 1, state="started")], [call("broadcast", 1, state="started")])) == [
        (MISMATCH, [0, 1])
    ]


def test_of_two_ranks_the_one_that_does_what_neither_did_before_is_named(look: Any) -> None:
    usual = [call("all_reduce", seq) for seq in range(1, 41)]
    dumps = world(
        [*usual, call("all_reduce", 41, state="started")], [*usual, call("all_gather", 41, ((1,),), state="started")]
    )
    assert look(dumps) == [(MISMATCH, [1])]


def test_an_operation_that_ended_on_one_rank_alone_lies_with_the_others(look: Any) -> None:
    found = look(world([call("all_reduce", 1, state="scheduled")], [call("all_reduce", 1)]))
    assert found == [("hang.all_arrived", [0])]


def test_a_batch_of_broadcasts_that_all_called_alike_is_no_fault(look: Any) -> None:
    batch = [call("broadcast", 1, state="scheduled"), call("broadcast", 1, state="scheduled"), closing("coalesced", 1)]
    assert look(world(batch, batch)) == []


def test_an_uneven_gather_is_no_fault_and_one_that_differs_by_rank_is(look: Any) -> None:
    uneven = [call("_broadcast_oop", 1), call("_broadcast_oop", 1, ((5, 5),)), closing("ALLGATHER_coalesced", 1)]
    even = [call("_broadcast_oop", 1), call("_broadcast_oop", 1), closing("ALLGATHER_coalesced", 1)]
    assert look(world(uneven, uneven, uneven)) == []
    assert look(world(uneven, even, even)) == [(MISMATCH, [0])]


def test_a_batch_that_one_rank_never_entered(look: Any) -> None:
    before = call("all_reduce", 1)
    batch = [call("_reduce_oop", 2, state="scheduled"), call("_reduce_oop", 2, state="scheduled"),
             closing("REDUCE_SCATTER_coalesced", 2, "started")]  # fmt: skip
    assert look(world([before], [before, *batch])) == [("hang.rank_missing", [0])]


def test_a_gathers_root_and_a_scatters_have_more_than_the_rest(look: Any) -> None:
    root = [call("gather", 1, out=((4, 4), (4, 4))), call("scatter", 2, ((4, 4), (4, 4)), ((4, 4),))]
    rest = [call("gather", 1, out=((),), output_dtypes=[""]), call("scatter", 2, ((),), ((4, 4),), input_dtypes=[""])]
    assert look(world(root, rest)) == []


@pytest.mark.parametrize("state", ["completed", "started"])
def test_an_all_to_all_of_other_sizes_on_each_rank_is_not_called_a_mismatch(look: Any, state: str) -> None:
    dumps = world([call("all_to_all", 1, ((6,),), ((3,),), state)], [call("all_to_all", 1, ((2,),), ((5,),), state)])
    assert [kind for kind, _ in look(dumps)] == ([] if state == "completed" else ["hang.all_arrived"])


def test_a_missing_rank_of_a_group_is_named_and_not_the_rest_of_the_world(look: Any) -> None:
    groups = {"tp": (0, 1), "dp": (0, 2)}
    dumps = world(
        [call("all_reduce", 1, group="tp"), call("all_reduce", 5, group="dp", state="started")],
        [call("all_reduce", 1, group="tp"), call("all_reduce", 2, group="tp", state="started")],
        [call("all_reduce", 4, group="dp")],
        groups=groups,
    )
    assert look(dumps) == [("hang.rank_missing", [2])]


def p2p(*calls: tuple[str, int], state: str = "completed") -> list[Entry]:
    """A batch of sends and receives: its members keep the state in which they were issued."""
    members = [call(name, 1, ((n,),), state="scheduled") for name, n in calls]
    return [*members, closing("coalesced", 1, state, is_p2p=True)]


def test_a_batch_of_sends_and_receives_that_ended_is_no_fault(look: Any) -> None:
    dumps = world(p2p(("send 0->1", 4)), p2p(("recv 1<-0", 4), ("send 1->2", 8)), p2p(("recv 2<-1", 8)))
    assert look(dumps) == []


def test_a_recv_that_no_send_meets_names_the_partner(look: Any) -> None:
    dumps = world(p2p(("send 0->1", 4), state="started"), p2p(("recv 1<-0", 4), ("recv 1<-2", 8), state="started"),
                  [call("broadcast", 1)])  # fmt: skip
    assert look(dumps) == [("hang.p2p_unmatched", [2])]


def test_a_send_and_a_recv_of_other_sizes_do_not_pair(look: Any) -> None:
    dumps = world(p2p(("send 0->1", 4), state="started"), p2p(("recv 1<-0", 5), state="started"))
    assert look(dumps) == [("hang.p2p_unmatched", [0, 1])]


def test_pipeline_stages_that_send_unequal_counts_before_a_collective_are_healthy(look: Any) -> None:
    first = [*p2p(("send 0->1", 4)), call("all_reduce", 1)]
    middle = [*p2p(("recv 1<-0", 4), ("send 1->2", 4)), call("all_reduce", 1)]
    last = [*p2p(("recv 2<-1", 4)), call("all_reduce", 1)]
    assert look(world(first, middle, last)) == []
