"""Ranks of one group at the same place of its order with different operations."""

from dataclasses import replace
from typing import Any

import pytest
from tests.detectors.states import Job, at, job

from diagd.daemon.detectors.finding import Severity

KIND = "hang.collective_mismatch"


def meet(ops: dict[int, tuple[str, dict[str, Any]]], world: int | None = None) -> Job:
    """Ranks meet at #7 in these operations."""
    met = job(world or len(ops))
    for rank, (name, more) in ops.items():
        met.waits(rank, name, seq=7, site=at(name.lower(), line=10 + rank), **more)
    return met


def same(name: str, *fields: dict[str, Any]) -> Job:
    return meet({rank: (name, more) for rank, more in enumerate(fields)})


def test_the_rank_in_another_operation_is_named_and_the_others_wait() -> None:
    found = meet({0: ("ALLREDUCE", {}), 1: ("ALLREDUCE", {}), 2: ("BARRIER", {})}).passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == (KIND, (2,), (0, 1))
    assert (found.severity, found.sure) == (Severity.CRITICAL, True)
    assert found.names == ("operation",)
    assert (found.op_name, found.op_seq, found.group) == ("BARRIER", 7, "0")
    assert (found.locations[0].rank, found.locations[0].frame.line) == (2, 12)


def test_two_ranks_that_disagree_are_a_tie_and_said_as_one() -> None:
    found = meet({0: ("ALLREDUCE", {}), 1: ("BROADCAST", {"root": 0})}).passes(2).finds()
    assert (found.ranks, found.waiting_ranks) == ((0, 1), ())
    assert "majority" in found.summary


def test_the_rank_that_stands_in_an_exception_is_the_odd_one_and_its_error_is_told() -> None:
    made = meet({0: ("ALLREDUCE", {}), 1: ("BARRIER", {})})
    text = "KeyError: Caught KeyError in DataLoader worker process 0. … KeyError: 1777\t/job/data.py\t8\t__getitem__"
    made.state.signals.put_fact(1, "exception/handled", 61, text)
    found = made.passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == (KIND, (1,), (0,))
    assert (found.names, found.causes[0].key) == (("operation", "KeyError"), "handling")
    assert [(place.rank, place.frame.line) for place in found.locations[:2]] == [(1, 8), (1, 11)]
    assert "rank 1 has failed with KeyError" in found.summary
    made.state.signals.put_fact(1, "exception/handled", 61, "")  # it is over
    assert made.passes(0.5).finds().ranks == (0, 1)
    made.state.signals.put_fact(0, "exception/handled", 61, text)  # both: it tells nothing
    made.state.signals.put_fact(1, "exception/handled", 61, text)
    assert made.passes(0.5).finds().ranks == (0, 1)


def after(usual: list[dict[int, tuple[str, int]]], now: dict[int, tuple[str, int]]) -> Job:
    """Two ranks have come through these places, each an operation and its elements, to the present one."""
    met = job(2)
    for seq, place in enumerate(usual, 1):
        for rank, (name, numel) in place.items():
            met.recorded(rank, name, seq, numel=numel)
    for rank, (name, numel) in now.items():
        met.waits_in_backward(rank, seq=len(usual) + 1, name=name, numel=numel)
    return met.passes(2)


def both(name: str, numel: int) -> dict[int, tuple[str, int]]:
    return {0: (name, numel), 1: (name, numel)}


@pytest.mark.parametrize(("rounds", "ranks"), [(10, (1,)), (4, (0, 1))])  # too few to know what is due
def test_of_two_ranks_the_one_that_leaves_the_order_of_each_step_breaks_the_tie(
    rounds: int, ranks: tuple[int, ...]
) -> None:
    step = [both("ALLGATHER", 6), both("ALLGATHER", 8), both("REDUCE_SCATTER", 8), both("ALLREDUCE", 1)]
    usual = [*[both("ALLREDUCE", 3)] * 6, *step * rounds, *step[:3]]  # the beginning is of another kind
    made = after(usual, {0: ("ALLREDUCE", 1), 1: ("ALLGATHER", 6)})
    for one in made.ranks.values():  # and is no longer known
        one.detail = one.detail.with_(recorder=one.detail.recorder[6:])
    found = made.passes(1).finds()
    assert (found.kind, found.ranks) == (KIND, ranks)
    assert ("left the order of operations" in found.causes[0].text) == (ranks == (1,))


def test_of_two_ranks_the_one_that_comes_to_what_none_came_to_before_breaks_the_order_of_all() -> None:
    usual = [both("ALLGATHER", 6), both("BROADCAST", 99), *[both("ALLREDUCE", 17)] * 40]
    found = after(usual, {0: ("ALLGATHER", 1), 1: ("ALLREDUCE", 17)}).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == (KIND, (0,), (1,))
    assert "majority" not in found.summary
    assert (found.causes[0].basis.value, "do so in this step" in found.causes[0].text) == ("inference", True)
    assert after(usual, {0: ("ALLREDUCE", 17), 1: ("BARRIER", 1)}).finds().ranks == (1,)


def test_what_torch_itself_did_at_first_is_not_what_the_script_calls() -> None:
    """DDP gathers a number of each rank as it is made."""
    met = after([both("ALLGATHER", 1), *[both("ALLREDUCE", 17)] * 40], {1: ("ALLREDUCE", 17)})
    for op in (met.ranks[rank].detail.recorder[0] for rank in range(2)):
        assert op.seq == 1
    made = at("wrap", line=5)
    for rank in range(2):
        first, *rest = met.ranks[rank].detail.recorder
        met._detail(rank, recorder=(replace(first, site=made), *rest))
    met.waits(0, "ALLGATHER", seq=42, numel=1).recorded(0, "ALLGATHER", 42, numel=1, retired=False)
    assert met.passes(2).finds().ranks == (0,)


@pytest.mark.parametrize(
    "usual",
    [
        [both("ALLREDUCE", 17)] * 6,  # too few steps
        [*[both("ALLREDUCE", 17)] * 20, both("ALLGATHER", 1), *[both("ALLREDUCE", 17)] * 20],  # as each epoch
        [*[{0: ("ALLREDUCE", 17)}] * 20, *[both("ALLREDUCE", 17)] * 20],  # its beginning is not known of all
        [*[both("ALLREDUCE", 17)] * 20, {0: ("ALLREDUCE", 17), 1: ("ALLREDUCE", 5)}, *[both("ALLREDUCE", 17)] * 20],
        [*[both("ALLREDUCE", 17), both("BARRIER", 1)] * 20, both("ALLREDUCE", 17)],  # the other is out of turn too
    ],
)
def test_where_the_order_before_does_not_tell_who_broke_it_it_stays_a_tie(
    usual: list[dict[int, tuple[str, int]]],
) -> None:
    found = after(usual, {0: ("ALLGATHER", 1), 1: ("ALLREDUCE", 17)}).finds()
    assert (found.kind, found.ranks) == (KIND, (0, 1))


def test_another_size_of_the_same_operation_breaks_no_order() -> None:
    found = after([both("ALLREDUCE", 17)] * 40, {0: ("ALLREDUCE", 1), 1: ("ALLREDUCE", 17)}).finds()
    assert (found.kind, found.ranks) == (KIND, (0, 1))


def test_three_ranks_in_three_operations_are_a_tie() -> None:
    found = meet({0: ("ALLREDUCE", {}), 1: ("BARRIER", {}), 2: ("ALLGATHER", {})}).passes(2).finds()
    assert (found.kind, found.ranks) == (KIND, (0, 1, 2))
    assert "majority" in found.summary


def test_two_against_two_is_a_tie() -> None:
    ops = {0: "ALLREDUCE", 1: "ALLREDUCE", 2: "BARRIER", 3: "BARRIER"}
    assert meet({r: (name, {}) for r, name in ops.items()}).passes(2).finds().ranks == (0, 1, 2, 3)


def test_one_against_seven_is_no_tie() -> None:
    found = meet({r: ("BARRIER" if r == 5 else "ALLREDUCE", {}) for r in range(8)}).passes(2).finds()
    assert (found.ranks, found.waiting_ranks) == ((5,), (0, 1, 2, 3, 4, 6, 7))


def test_two_minorities_are_both_named() -> None:
    names = ["ALLREDUCE"] * 3 + ["BARRIER", "ALLGATHER"]
    assert meet({r: (name, {}) for r, name in enumerate(names)}).passes(2).finds().ranks == (3, 4)


@pytest.mark.parametrize(
    ("name", "usual", "other", "field"),
    [
        ("ALLREDUCE", {"dtype": "float32"}, {"dtype": "float16"}, "dtype"),
        ("ALLREDUCE", {"numel": 66_000}, {"numel": 66_001}, "number of elements"),
        ("ALLREDUCE", {"shapes": ((4, 8),)}, {"shapes": ((4, 9),)}, "number of elements"),
        ("ALLREDUCE", {"reduce_op": "SUM"}, {"reduce_op": "MAX"}, "reduce op"),
        ("BROADCAST", {"root": 0}, {"root": 2}, "root"),
        ("GATHER", {"root": 0}, {"root": 2}, "root"),
        ("ALLTOALL", {"dtype": "float32"}, {"dtype": "bfloat16"}, "dtype"),
    ],
)
def test_the_field_that_differs_is_named(
    name: str, usual: dict[str, Any], other: dict[str, Any], field: str
) -> None:  # fmt: skip
    found = same(name, usual, usual, other).passes(2).finds()
    assert (found.kind, found.ranks, found.names) == (KIND, (2,), (field,))
    assert found.causes[0].key == "arguments"


def test_all_fields_that_differ_are_named() -> None:
    usual = {"dtype": "float32", "numel": 4, "reduce_op": "SUM"}
    other = {"dtype": "int64", "numel": 8, "reduce_op": "MAX"}
    found = same("ALLREDUCE", usual, usual, other).passes(2).finds()
    assert found.names == ("dtype", "number of elements", "reduce op")


@pytest.mark.parametrize("name", ["GATHER", "SCATTER", "ALLTOALL"])
def test_shapes_that_may_differ_by_rank_are_no_mismatch(name: str) -> None:
    assert same(name, {"numel": 3}, {"numel": 5}, {"numel": 7}).passes(30).kinds() <= {
        ("hang.all_arrived", (0, 1, 2), "warning")
    }


def test_the_same_number_of_elements_in_another_shape_is_no_mismatch() -> None:
    found = same("ALLREDUCE", {"numel": 12, "shapes": ((3, 4),)}, {"numel": 12, "shapes": ((12,),)}).passes(30).find()
    assert {f.kind for f in found} == {"hang.all_arrived"}


def test_a_mismatch_is_proven_only_after_two_looks() -> None:
    young = meet({0: ("ALLREDUCE", {}), 1: ("BARRIER", {})}).passes(1)
    assert young.find() == ()
    assert young.passes(0.5).finds().kind == KIND


def test_a_field_that_one_rank_does_not_know_is_not_compared() -> None:
    found = same("ALLREDUCE", {"dtype": "float32"}, {}, {"dtype": "float32"}).passes(30).find()
    assert {f.kind for f in found} == {"hang.all_arrived"}


def test_a_broadcast_whose_root_has_gone_on_is_told_from_the_others_all_reduce() -> None:
    met = job(3).issued(0, "BROADCAST", 7, root=0).outside(0).works(0, "cpu")
    found = met.waits(1, seq=7).waits(2, seq=7).passes(3).find()
    assert (KIND, (0,)) in {(f.kind, f.ranks) for f in found}


def test_a_broadcast_whose_root_has_gone_on_is_no_mismatch() -> None:
    fine = job(3).issued(0, "BROADCAST", 7, root=0).outside(0).works(0, "cpu")
    assert fine.waits(1, "BROADCAST", seq=7, root=0).waits(2, "BROADCAST", seq=7, root=0).passes(3).find() == ()


def test_asynchronous_operations_that_no_one_waits_for_are_quiet() -> None:
    free = job(3)
    for rank in range(3):
        free.issued(rank, "ALLREDUCE", 7, is_async=True, numel=4 + rank).outside(rank).works(rank, "cpu")
    assert free.passes(100).find() == ()


def test_the_flight_recorders_entries_tell_a_mismatch_in_backward() -> None:
    met = job(3)
    for rank, shape in enumerate([(64,), (64,), (96,)]):
        met.waits_in_backward(rank, seq=12, shapes=(shape,), numel=shape[0])
    found = met.passes(2).finds()
    assert (found.kind, found.ranks, found.names) == (KIND, (2,), ("number of elements",))


def test_probe_and_recorder_are_compared_by_name_alone() -> None:
    met = job(2).waits(0, seq=12, numel=10, dtype="float32").waits_in_backward(1, seq=12, numel=12, dtype="float16")
    assert KIND not in {f.kind for f in met.passes(2).find()}


def test_an_operation_known_only_by_a_counter_is_no_mismatch() -> None:
    met = job(3).waits(0, seq=7).waits(1, seq=7).entered(2, 7).outside(2).works(2, "cpu")
    assert KIND not in {f.kind for f in met.passes(5).find()}


def test_ranks_of_different_groups_do_not_disagree() -> None:
    apart = job(4, groups={"a": (0, 1), "b": (2, 3)})
    apart.waits(0, seq=3, group="a").waits(1, seq=3, group="a")
    apart.waits(2, "BARRIER", seq=3, group="b").waits(3, "BARRIER", seq=3, group="b")
    assert KIND not in {f.kind for f in apart.passes(30).find()}


def test_a_mismatch_among_the_arrived_is_told_while_a_third_is_late() -> None:
    met = meet({0: ("ALLREDUCE", {}), 1: ("BARRIER", {})}, world=3).outside(2).works(2, "cpu").passes(10)
    found = met.find()
    assert ("hang.collective_mismatch", (0, 1), Severity.CRITICAL) in {(f.kind, f.ranks, f.severity) for f in found}
    assert {f.severity for f in found if 2 in f.ranks} <= {Severity.WARNING}


def test_a_mismatch_whose_victim_aborts_is_no_death() -> None:
    met = same("ALLREDUCE", {"numel": 8}, {"numel": 8}, {"numel": 16}).passes(0.5)
    found = met.dies(0, signal="SIGABRT").passes(0.5).finds()
    assert (found.kind, found.ranks) == (KIND, (2,))


def test_a_mismatch_whose_victim_gets_an_exception_is_no_death() -> None:
    met = same("ALLREDUCE", {"numel": 8}, {"numel": 8}, {"numel": 16}).passes(0.5)
    found = met.wait_raises(1).passes(0.5).finds()
    assert (found.kind, found.ranks) == (KIND, (2,))


def test_the_ranks_behind_a_mismatch_wait_for_it() -> None:
    met = job(4, groups={"a": (0, 1, 2), "b": (2, 3)}).waits(3, seq=1, group="b")
    met.waits(0, seq=7, group="a").waits(1, seq=7, group="a").waits(2, "BARRIER", seq=7, group="a")
    found = met.passes(2).finds()
    assert (found.ranks, found.waiting_ranks) == ((2,), (0, 1, 3))


def test_the_place_where_the_histories_part_is_told() -> None:
    met = job(2).issued(0, "BROADCAST", 5, root=0).issued(1, "ALLREDUCE", 5)
    met.issued(0, "ALLREDUCE", 6).issued(1, "BARRIER", 6).waits(0, "BARRIER", seq=7).waits(1, seq=7)
    found = met.passes(2).finds()
    assert any("#5" in e.what for e in found.causes[0].evidence)


@pytest.mark.parametrize(("name", "key"), [("metrics", "threads"), ("Dummy-3", "path"), ("", "path")])
def test_two_threads_of_a_rank_that_share_a_group_are_told(name: str, key: str) -> None:
    met = meet({0: ("ALLREDUCE", {}), 1: ("BARRIER", {"thread": 77, "thread_name": name}), 2: ("ALLREDUCE", {})})
    met.issued(1, "ALLREDUCE", 6, thread=met.ranks[1].detail.pid)
    (cause,) = met.passes(2).finds().causes
    assert cause.key == key
    if key == "threads":
        assert cause.text.startswith("the main thread and thread 'metrics' communicate on the same group")
        told = "the main thread and thread 'metrics' issued operations of group 0"
        assert told in [one.what for one in cause.evidence]
    sizes = same("ALLREDUCE", {"numel": 4}, {"numel": 9, "thread": 77, "thread_name": name}, {"numel": 4})
    assert sizes.passes(2).finds().causes[0].key == ("threads" if key == "threads" else "arguments")
    met.ranks[1].detail = met.ranks[1].detail.with_(history=())  # each is known of one rank alone
    assert met.passes(0.1).finds().causes[0].key == key


def test_two_calls_that_meet_are_another_path_and_not_another_size() -> None:
    calls = {"log": at("log_global", line=7), "sync": at("sync", line=5)}
    met = job(3)
    for rank in range(3):
        for seq in range(1, 9):
            met.did(rank, "ALLREDUCE", calls["log" if seq % 2 else "sync"], seq=seq, entered_s=met.now_s - 9 + seq)
    for rank in range(3):
        skips = rank == 1
        met.waits(rank, seq=9, numel=64 if skips else 1, site=calls["sync" if skips else "log"])
    found = met.passes(2).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == (KIND, (1,), "path")
    assert "calls from different lines" in found.causes[0].text


@pytest.mark.parametrize(("known", "key"), [(True, "path"), (False, "arguments")])
def test_sizes_that_differ_where_one_rank_came_from_a_line_of_its_own_are_two_calls_that_met(
    known: bool, key: str
) -> None:
    """As where one has left its loop for a checkpoint; where both lines are new, they may be meant to meet."""
    loop, save = at("forward", line=43), at("save", line=50)
    made = job(2)
    for rank in (0, 1):
        for seq in range(1, 7):
            made.did(rank, "ALLGATHER", loop if known else at("begin", line=seq), seq=seq, numel=64)
    made.waits(0, "ALLGATHER", seq=7, site=loop, numel=64).waits(1, "ALLGATHER", seq=7, site=save, numel=2)
    found = made.passes(2).finds()
    assert (found.kind, found.causes[0].key) == (KIND, key)


def test_a_tie_is_said_once_all_members_have_been_heard() -> None:
    """The third was seen in the operation before, on its way here."""
    made = job(3).train(0, 1, 2).passes(1)
    made.waits(0, "BROADCAST", seq=5, root=0).waits(2, "BROADCAST", seq=5, root=1).waits(1, "ALLREDUCE", seq=4)
    assert not [one for one in made.passes(2).find() if one.kind == "hang.collective_mismatch" and one.op_seq == 5]
    (found,) = (one for one in made.passes(3).find() if one.kind == "hang.collective_mismatch" and one.op_seq == 5)
    assert found.ranks == (0, 2)
