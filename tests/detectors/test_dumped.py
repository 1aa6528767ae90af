"""Jobs of which only dumps are there: what each rank had entered at one moment, and no sign of life."""

from collections.abc import Mapping
from typing import Any

import pytest

from diagd.daemon.detectors.dumped import undecided, young
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.registry import detect
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.state.job import OTHERS, JobState
from diagd.daemon.state.model import Detail, Facts, Frame, Group, Operation, Stack, Status, Thread

NOW_S = 1_000_000.0
HUNG_SINCE_S = NOW_S - 600.0
CALL = Frame("step", "/job/train.py", 50)


def op(name: str, seq: int, *, done: bool = True, **more: Any) -> Operation:
    more = {"group": "0", "numel": 4, "dtype": "float32", "entered_s": HUNG_SINCE_S, **more}
    return Operation(name, seq=seq, source="flight recorder", retired=done, **more)


def dumps(
    world: int,
    entries: dict[int, list[Operation]],
    groups: Mapping[str, tuple[int, ...]] | None = None,
    backend: str = "nccl",
) -> JobState:
    state = JobState(hang_after_s=60.0, from_dumps=True, world_size=world)
    members = {"0": tuple(range(world)), **(groups or {})}
    for rank, found in entries.items():
        mine = tuple(Group(name, ranks) for name, ranks in members.items() if rank in ranks)
        state.apply([Facts(rank)], [Detail(rank, backend=backend, groups=mine, recorder=tuple(found))], NOW_S)
    for rank in set(range(world)) - set(entries):
        state.not_known["", rank] = "left no dump"
    return state


def only(state: JobState) -> Finding:
    (found,) = detect(state)
    return found


def test_the_rank_whose_own_dump_ends_before_what_the_others_wait_in_is_missing() -> None:
    at_six = [op("ALLREDUCE", 5), op("ALLREDUCE", 6, done=False)]
    found = only(dumps(3, {0: at_six, 1: [op("ALLREDUCE", 5, site=CALL)], 2: at_six}))
    assert (found.kind, found.ranks, found.waiting_ranks, found.severity) == (
        "hang.rank_missing", (1,), (0, 2), Severity.CRITICAL,
    )  # fmt: skip
    assert (found.op_name, found.op_seq, found.locations[0].frame) == ("ALLREDUCE", 6, CALL)
    assert "a dump does not show" in found.causes[0].text
    assert " for " not in found.summary  # how long is not known of a dump


def stack_of(state: str, syscall: str, *, gil: bool = False) -> Stack:
    frames = (Frame("flush", "/job/metrics.py", 8), Frame("train", "/job/train.py", 40))
    others = (
        (Thread(12, "encoder", (Frame("encode", "/job/metrics.py", 30),), main=False, holds_gil=True),) if gil else ()
    )
    return Stack(11, "rank", state, (Thread(11, "MainThread", frames, main=True), *others), NOW_S, syscall=syscall)


def looked_at(stack: Stack, moved_s: float = 0.0) -> Finding:
    """Rank 1, whose box last showed something new at that time; 0 where there is none."""
    at_six = [op("ALLREDUCE", 5), op("ALLREDUCE", 6, done=False)]
    state = dumps(2, {0: at_six, 1: [op("ALLREDUCE", 5, site=CALL)]})
    state.apply([Facts(1, phase_s=moved_s)], [state.detail(1).with_(stacks=(stack,))], NOW_S)
    return only(state)


def test_a_missing_rank_whose_stack_shows_it_asleep_in_a_lock_is_blocked_there() -> None:
    found = looked_at(stack_of("S", "futex"))
    assert (found.kind, found.ranks, found.locations[0].frame.function) == ("hang.rank_blocked", (1,), "flush")
    assert found.causes[0].key == "lock"
    assert found.causes[0].confidence <= 0.7  # one look


def test_the_one_thread_beside_it_is_named_from_a_dump_as_well() -> None:
    alone = stack_of("S", "futex")
    upload = Thread(14, "upload", (Frame("upload", "/job/store.py", 9),), main=False)
    found = looked_at(Stack(11, "rank", "S", (*alone.threads, upload), NOW_S, syscall="futex"))
    assert "it waits for a lock while its thread 'upload' is in upload (store.py:9)" in found.summary
    assert found.causes[0].key == "companion"


@pytest.mark.parametrize("stack", [stack_of("R", ""), stack_of("S", "nanosleep"), stack_of("S", "futex", gil=True)])
def test_a_missing_rank_that_runs_sleeps_or_waits_for_the_gil_is_only_missing(stack: Stack) -> None:
    assert looked_at(stack).kind == "hang.rank_missing"


@pytest.mark.parametrize(("moved_s", "kind"), [(HUNG_SINCE_S, "rank_blocked"), (NOW_S - 0.02, "rank_missing")])
def test_one_that_sleeps_is_blocked_there_only_where_its_box_shows_that_it_has_for_long(
    moved_s: float, kind: str
) -> None:
    assert looked_at(stack_of("S", "clock_nanosleep"), moved_s).kind == f"hang.{kind}"


@pytest.mark.parametrize(
    ("moved_s", "said", "confidence"),
    [
        (HUNG_SINCE_S, "its box had shown no step and no operation for 10 min 0 s", 0.85),
        (NOW_S - 2.0, "for how long, one look does not show", 0.7),
    ],
)
def test_how_long_a_rank_has_stood_is_said_where_its_box_tells(moved_s: float, said: str, confidence: float) -> None:
    cause = looked_at(stack_of("S", "futex"), moved_s).causes[0]
    assert said in cause.text
    assert cause.confidence == confidence


def test_a_rank_without_a_dump_is_not_blamed_and_what_it_leaves_open_is_said() -> None:
    at_six = [op("ALLREDUCE", 5), op("ALLREDUCE", 6, done=False)]
    state = dumps(3, {0: at_six, 2: at_six})
    assert detect(state) == ()
    assert list(undecided(scene_of(state))) == [
        "ranks 0,2 wait in ALLREDUCE #6 of group 0, and for whom is not known: rank 1 left no dump"
    ]


def test_a_missing_rank_is_named_beside_one_without_a_dump() -> None:
    at_six = [op("ALLREDUCE", 5), op("ALLREDUCE", 6, done=False)]
    found = only(dumps(4, {0: at_six, 1: [op("ALLREDUCE", 5)], 3: at_six}))
    assert (found.kind, found.ranks) == ("hang.rank_missing", (1,))


def test_no_circle_is_closed_over_what_is_not_known() -> None:
    groups = {"a": (0, 1), "b": (0, 1)}
    state = dumps(2, {0: [op("ALLREDUCE", 3, group="a", done=False)], 1: [op("ALLREDUCE", 3, group="b", done=False)]},
                  groups)  # fmt: skip
    assert only(state).kind == "hang.group_cycle"
    state.not_known["a", 1] = "has lost its older entries"
    assert detect(state) == ()
    assert list(undecided(scene_of(state))) == [
        "rank 0 waits in ALLREDUCE #3 of group a, and for whom is not known: rank 1 has lost its older entries"
    ]


def test_a_short_wait_is_no_hang() -> None:
    young = op("ALLREDUCE", 6, done=False, entered_s=NOW_S - 1.0)
    assert detect(dumps(2, {0: [young], 1: [op("ALLREDUCE", 5)]})) == ()


@pytest.mark.parametrize(
    ("lasts_s", "said"), [(0.2, []), (2.0, ["rank 0 waits in ALLREDUCE #6 of group 0 for rank 1"])]
)
def test_a_wait_that_is_too_short_to_judge_is_said_all_the_same(lasts_s: float, said: list[str]) -> None:
    lately = op("ALLREDUCE", 6, done=False, entered_s=NOW_S - lasts_s)
    state = dumps(2, {0: [op("ALLREDUCE", 5), lately], 1: [op("ALLREDUCE", 5)]})
    assert detect(state) == ()
    told = [text.partition(",")[0] for text in young(scene_of(state))]
    assert told == (["rank 0 waits in ALLREDUCE #6 of group 0 for rank 1"] if said else [])


def test_finished_operations_are_no_fault() -> None:
    done = [op("ALLREDUCE", 1), op("BARRIER", 2)]
    assert detect(dumps(2, {0: done, 1: done})) == ()


def test_an_operation_that_ended_on_some_ranks_lies_with_those_on_which_it_has_not() -> None:
    found = only(dumps(3, {r: [op("ALLREDUCE", 6, done=r != 2)] for r in range(3)}))
    assert (found.kind, found.ranks) == ("hang.all_arrived", (2,))
    assert "not finished on rank 2, as it has on ranks 0,1" in found.summary


def test_a_size_that_differs_is_found_also_where_the_operation_has_ended() -> None:
    found = only(dumps(3, {r: [op("ALLREDUCE", 1), op("ALLREDUCE", 2, numel=5 if r == 1 else 4)] for r in range(3)}))
    assert (found.kind, found.ranks, found.names) == ("hang.collective_mismatch", (1,), ("number of elements",))


def test_an_uneven_exchange_is_none() -> None:
    for name in ("ALLTOALL", "GATHER", "SCATTER"):
        assert detect(dumps(2, {0: [op(name, 1, numel=8)], 1: [op(name, 1, numel=0)]})) == ()


def p2p(name: str, peer: int, seq: int = 1) -> Operation:
    return op(name, seq, peer=peer, done=False)


def test_a_send_that_is_met_by_the_partners_recv_waits_for_no_rank() -> None:
    found = detect(dumps(2, {0: [p2p("SEND", 1)], 1: [p2p("RECV", 0)]}))
    assert {f.kind for f in found} == {"hang.all_arrived"}


def test_a_recv_without_its_send_names_the_partner() -> None:
    found = only(dumps(3, {0: [op("BARRIER", 1)], 1: [op("BARRIER", 1), p2p("RECV", 0)], 2: [op("BARRIER", 1)]}))
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.p2p_unmatched", (0,), (1,))


def test_each_send_of_a_batch_needs_a_partner_of_its_own() -> None:
    batch = [p2p("SEND", 1), p2p("RECV", 2)]
    found = only(dumps(3, {0: batch, 1: [p2p("RECV", 0)], 2: [op("BARRIER", 1)]}))
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.p2p_unmatched", (2,), (0, 1))


def test_two_sends_are_not_met_by_one_recv() -> None:
    found = detect(dumps(2, {0: [p2p("SEND", 1), p2p("SEND", 1, seq=2)], 1: [p2p("RECV", 0)]}))
    assert (0,) not in [f.ranks for f in found]


def test_a_pending_send_does_not_stand_behind_a_later_collective() -> None:
    found = only(dumps(2, {0: [p2p("SEND", 1), op("BARRIER", 1)], 1: [op("BARRIER", 1)]}))
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", (1,))


def test_a_stopped_rank_is_known_from_a_dump_of_its_process() -> None:
    state = dumps(2, {0: [op("ALLREDUCE", 6, done=False)], 1: [op("ALLREDUCE", 5)]})
    state.apply([Facts(1, status=Status.STOPPED)], [], NOW_S)
    assert (only(state).kind, only(state).ranks) == ("hang.rank_stopped", (1,))


def test_ranks_that_differ_at_one_place_are_told_at_once_as_entries_name_their_place() -> None:
    young: dict[str, Any] = {"done": False, "entered_s": NOW_S - 0.1}
    found = only(
        dumps(3, {0: [op("ALLREDUCE", 2, **young)], 1: [op("BARRIER", 2, **young)], 2: [op("ALLREDUCE", 2, **young)]})
    )
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.collective_mismatch", (1,), (0, 2))


def test_where_histories_part_is_found_although_what_agrees_was_left_out() -> None:
    parted = [op("BARRIER", 5), op("BARRIER", 9), op("ALLREDUCE", 10, done=False)]
    others = [op("ALLREDUCE", 5), op("ALLREDUCE", 9), op("BARRIER", 10, done=False)]
    (found, *_) = detect(dumps(3, {0: others, 1: parted, 2: others}))
    assert (found.ranks, found.op_seq) == ((1,), 10)
    assert "the histories of group 0 part at #5 already" in [e.what for e in found.causes[0].evidence]


def test_members_that_no_dump_names_are_not_ruled_out() -> None:
    state = dumps(2, {r: [op("ALLREDUCE", 6, done=False)] for r in range(2)})
    state.not_known["0", OTHERS] = "no dump names its members"
    assert only(state).severity == Severity.WARNING
    assert "whether it has more members is not known" in only(state).summary
    alone = dumps(1, {0: [op("ALLREDUCE", 6, done=False)]})
    alone.not_known["0", OTHERS] = "no dump names its members"
    assert detect(alone) == ()
    assert list(undecided(scene_of(alone))) == [
        "rank 0 waits in ALLREDUCE #6 of group 0, and for whom is not known: no dump names its members"
    ]


def test_a_send_and_a_recv_of_another_size_do_not_pair() -> None:
    sent, wanted = ((4,),), ((5,),)
    found = only(dumps(2, {
        0: [op("SEND", 1, peer=1, done=False, shapes=sent)],
        1: [op("RECV", 1, peer=0, done=False, shapes=wanted, numel=5)],
    }))  # fmt: skip
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", (0, 1))
    assert "float32[4]" in found.summary
    assert "float32[5]" in found.summary


def test_sends_of_one_batch_pair_in_their_order() -> None:
    sends = [op("SEND", 1, peer=1, done=False, numel=n) for n in (4, 400)]
    receives = [op("RECV", 1, peer=0, done=False, numel=n) for n in (4, 400)]
    assert [f.kind for f in detect(dumps(2, {0: sends, 1: receives}))] == ["hang.all_arrived"]
    assert [f.kind for f in detect(dumps(2, {0: sends, 1: receives[::-1]}))] == ["hang.p2p_unmatched"]


def test_operations_of_two_groups_in_opposite_orders_on_two_devices_are_a_circle() -> None:
    """All have entered both, and neither can begin."""
    groups = {"a": (0, 1, 2), "b": (0, 1, 2)}
    first, then = op("ALLREDUCE", 3, group="a", done=False), op("ALLREDUCE", 8, group="b", done=False)
    found = only(dumps(3, {0: [first, then], 1: [then, first], 2: [first, then]}, groups))
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.group_cycle", (1,), (0, 2))
    sides = detect(dumps(3, {0: [first, then], 1: [then, first], 2: [first, then]}, groups, backend="gloo"))
    assert "hang.group_cycle" not in [f.kind for f in sides]  # gloo gives each group threads of its own


def test_what_all_have_entered_is_no_fault_where_one_of_them_is_held_up_before_it() -> None:
    groups = {"tp": (0, 1), "dp": (1, 2)}
    found = only(
        dumps(3, {
            0: [op("ALLREDUCE", 4, group="tp", done=False)],
            1: [op("ALLREDUCE", 9, group="dp", done=False), op("ALLREDUCE", 4, group="tp", done=False)],
            2: [op("ALLREDUCE", 8, group="dp")],
        }, groups)
    )  # fmt: skip
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_missing", (2,), (0, 1))


def test_a_device_that_is_an_operation_behind_the_others_is_named() -> None:
    done, later = op("ALLREDUCE", 5), op("ALLREDUCE", 6, done=False)
    behind = [op("ALLREDUCE", 5, done=False), later]
    found = only(dumps(3, {0: [done, later], 1: behind, 2: [done, later]}))
    assert (found.kind, found.ranks, found.op_seq) == ("hang.all_arrived", (1,), 5)
