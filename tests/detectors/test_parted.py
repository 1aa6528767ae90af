"""Where histories part, and what is left to tell when communication broke down."""

from tests.detectors.states import IN_ALL_REDUCE, IN_BACKWARD, TORCH, TRAIN, Job, at, job

from diagd.daemon.detectors.deaths import first_deaths
from diagd.daemon.detectors.history import strayed_at
from diagd.daemon.detectors.parted import parted
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.state.model import Ending, Frame


def gathers(made: Job, places: int, odd: dict[int, str] | None = None) -> Job:
    """All ranks call from the same line each time, but rank 0 at the places of `odd` from that function."""
    for seq in range(1, places + 1):
        for rank in range(3):
            function = (odd or {}).get(seq, "forward") if rank == 0 else "forward"
            made.ranks[rank].detail = made.ranks[rank].detail.with_(
                history=(
                    *made.ranks[rank].detail.history,
                    *job_op(function, seq, made.now_s),
                )
            )
    return made


def job_op(function: str, seq: int, now_s: float) -> tuple[object, ...]:
    from diagd.daemon.state.model import Operation

    return (Operation("ALLGATHER", "0", seq, entered_s=now_s, returned_s=now_s, site=at(function, line=len(function))),)


def test_the_call_that_no_other_rank_made_is_the_place_of_the_mistake() -> None:
    made = gathers(job(3), 20, {15: "snapshot", 16: "snapshot"}).report()
    strayed = strayed_at(scene_of(made.state), "0", 21, 0)
    assert strayed is not None
    assert strayed.function == "snapshot"


def test_lines_that_always_differ_tell_nothing() -> None:
    made = gathers(job(3), 20, dict.fromkeys(range(1, 21), "as_root")).report()
    assert strayed_at(scene_of(made.state), "0", 21, 0) is None


def test_ranks_that_call_from_the_same_lines_have_not_strayed() -> None:
    made = gathers(job(3), 20).report()
    assert strayed_at(scene_of(made.state), "0", 21, 0) is None


def aborted(usual: str) -> Job:
    """Rank 0 aborts inside backward at `log_norm`; the others fall out of `forward`, where all have been before."""
    made = gathers(job(3), 12)
    made.stack(0, IN_BACKWARD, at(usual, line=len(usual)), TRAIN).dies(0, signal="SIGABRT")
    for rank in (1, 2):
        made.waits(rank, "ALLGATHER", seq=13, site=at("forward", line=len("forward"))).wait_raises(rank, "[gloo] reset")
    return made


def test_a_place_from_steps_before_is_no_frame_of_the_stack() -> None:
    made = gathers(job(3), 12)
    made.waits(0, "ALLREDUCE", seq=-1, site=at("log_norm", line=8)).dies(0, signal="SIGABRT")
    for rank in (1, 2):
        made.waits(rank, "ALLGATHER", seq=13, site=at("forward", line=7)).wait_raises(rank, "[gloo] reset")
    made.passes(2)
    made.state.end(1, made.now_s)
    made.report()
    (found,) = parted(scene_of(made.state))
    assert [place.frame.function for place in found.locations if place.rank == 0] == ["log_norm"]


def test_a_call_never_made_before_is_blamed_when_communication_breaks_down() -> None:
    made = aborted("log_norm").passes(2)
    made.state.end(1, made.now_s)
    found = made.finds()
    assert (found.kind, found.ranks, found.locations[0].frame.function) == (
        "hang.collective_mismatch", (0,), "log_norm",
    )  # fmt: skip
    assert found.causes[0].confidence <= 0.7


def test_of_a_call_that_most_make_for_the_first_time_the_rank_that_did_not_is_blamed() -> None:
    made = gathers(job(3), 12)
    made.stack(1, IN_BACKWARD, at("forward", line=len("forward")), TRAIN).dies(1, signal="SIGABRT")
    for rank in (0, 2):
        made.waits(rank, "ALLGATHER", seq=13, site=at("log_norm", line=8)).wait_raises(rank, "[gloo] reset")
    made.passes(2)
    made.state.end(1, made.now_s)
    found = made.finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.collective_mismatch", (1,), (0, 2))
    assert "rank 1 did not go along" in found.summary


def test_where_most_had_come_to_one_known_operation_the_rank_that_was_elsewhere_is_blamed() -> None:
    """A validation that one rank left before its all-reduce: both lines were called from before."""
    made = gathers(job(3), 6, {3: "validate"})
    for seq in range(7, 13):
        for rank in range(3):
            made.did(rank, "ALLREDUCE", at("validate", line=8), seq=seq)
    made.stack(1, IN_BACKWARD, at("forward", line=len("forward")), TRAIN).dies(1, signal="SIGABRT")
    for rank in (0, 2):
        made.waits(rank, "ALLREDUCE", seq=13, site=at("validate", line=8)).wait_raises(rank, "[gloo] reset")
    made.passes(1)
    made.state.end(1, made.now_s)
    found = made.finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.collective_mismatch", (1,), (0, 2))
    assert "cannot be told" not in found.causes[0].text


def meshed() -> Job:
    """Ranks 0 and 1 sum up in their groups a and b at every step; then rank 1 aborts in group c at the same line."""
    made = job(3, groups={"a": (0, 2), "b": (1, 2), "c": (0, 1)})
    for seq in range(1, 13):
        for rank, group in ((0, "a"), (1, "b")):
            made.issued(rank, "ALLREDUCE", seq, group, returned_s=made.now_s).passes(0.1)
    made.waits(1, seq=1, group="c").stack(1, IN_ALL_REDUCE, at("step", line=50), TRAIN)
    for rank in (0, 2):
        functional = Frame("wait_tensor", f"{TORCH}/distributed/_functional_collectives.py", 142, user=False)
        fell = Ending("exception", "RuntimeError", "[gloo] reset", 1, (functional, at("forward"), TRAIN), made.now_s)
        made.dies(rank, code=1, ending=fell)
    made.dies(1, signal="SIGABRT").passes(2)
    made.state.end(1, made.now_s)
    return made


def test_who_made_his_usual_call_in_another_group_is_blamed_and_not_who_left_no_call_sites() -> None:
    found = meshed().finds()
    assert (found.kind, found.ranks) == ("hang.collective_mismatch", (1,))
    assert "another group" in found.summary


def test_ranks_that_all_stood_at_one_call_are_not_said_to_disagree() -> None:
    made = aborted("forward").passes(2)
    made.state.end(1, made.now_s)
    assert "hang.collective_mismatch" not in {f.kind for f in made.find()}


def test_of_one_line_that_passes_backward_and_calls_who_called_as_never_before_is_blamed() -> None:
    made = gathers(job(3), 12)
    for rank in (0, 2):
        made.stack(rank, IN_BACKWARD, TRAIN)
        made.ranks[rank].detail = made.ranks[rank].detail.with_(backward_site=TRAIN)
    made.waits(1, "ALLREDUCE", seq=13, site=TRAIN).wait_raises(1, "[gloo] reset")
    made.dies(0, signal="SIGABRT").raises(2, "RuntimeError", "[gloo] Connection reset", IN_BACKWARD, TRAIN)
    made.passes(2).state.end(1, made.now_s)
    found = made.finds()
    assert (found.kind, found.ranks) == ("hang.collective_mismatch", (1,))
    assert "ranks 0,2 in the backward pass at" in found.summary
    assert "rank 1 in ALLREDUCE #13 of group 0 at" in found.summary


def test_an_abort_in_a_backward_pass_out_of_which_others_fell_is_no_death_of_its_own() -> None:
    """The last stack that was read of it is older than the pass."""
    made = gathers(job(3), 12)
    made.stack(0, TRAIN)
    made.ranks[0].facts.phase = "backward"
    made.dies(0, signal="SIGABRT")
    for rank in (1, 2):
        made.raises(rank, "RuntimeError", "[gloo] Connection reset", IN_BACKWARD, TRAIN)
    made.passes(2)
    assert first_deaths(scene_of(made.state)) == []
    made.ranks[0].facts.phase = "forward"
    assert [death.rank for death in first_deaths(scene_of(made.report().state))] == [0]


def hooked(dtypes: dict[int, str], seen_from_start: bool = True, counted: bool = True) -> Job:
    """All ranks of four fall out of backward; a communication hook called operation 20 on those of `dtypes`."""
    made = job(4)
    early, late = (made.ranks, ()) if seen_from_start else ((), made.ranks)
    for rank in early:
        made.did(rank, "INIT", TRAIN)
    made.passes(1)
    for rank in made.ranks:
        made.stack(rank, IN_BACKWARD, TRAIN).entered(rank, 20 if counted else 17)
        if rank in dtypes:
            made.issued(rank, "ALLREDUCE", 20, dtype=dtypes[rank], numel=900, is_async=True)
    made.passes(0.5)
    for rank in late:
        made.did(rank, "STORE_SET", TRAIN, detail="done")
    made.dies(1, signal="SIGABRT")
    for rank in (0, 2, 3):
        made.raises(rank, "RuntimeError", "[gloo] Connection closed by peer", IN_BACKWARD, TRAIN)
        made.dies(rank, signal="SIGTERM", ago_s=-0.2)  # by the launcher, on its way out
    made.passes(2).state.end(1, made.now_s)
    return made


def test_who_met_a_called_operation_without_a_call_is_named_when_all_stood_in_one_line() -> None:
    found = hooked({0: "float16", 1: "float16", 3: "float16"}).finds()
    assert (found.kind, found.ranks, found.op_seq) == ("hang.collective_mismatch", (2,), 20)
    assert found.locations[0].frame == TRAIN


def test_a_counter_read_too_early_does_not_hide_who_met_a_called_operation_without_a_call() -> None:
    made = hooked({0: "float16", 1: "float16", 3: "float16"}, counted=False)
    found = made.finds()
    assert (found.kind, found.ranks) == ("hang.collective_mismatch", (2,))
    found = made.recorded(2, "ALLGATHER", 1, retired=False).finds()  # as it was read long before
    assert (found.kind, found.ranks) == ("hang.collective_mismatch", (2,))


def test_hooks_that_call_with_different_types_are_told_apart_when_all_stood_in_one_line() -> None:
    found = hooked({0: "float16", 1: "float16", 2: "bfloat16", 3: "float16"}).finds()
    assert (found.kind, found.ranks) == ("hang.collective_mismatch", (2,))


def test_a_rank_whose_calls_are_known_only_since_then_is_not_said_to_have_called_none() -> None:
    made = hooked({0: "float16", 1: "float16", 3: "float16"}, seen_from_start=False)
    assert "hang.collective_mismatch" not in {f.kind for f in made.find()}


def test_a_hook_that_all_ranks_have_is_no_mismatch() -> None:
    made = hooked(dict.fromkeys(range(4), "float16"))
    assert "hang.collective_mismatch" not in {f.kind for f in made.find()}


def test_a_rank_that_makes_many_steps_without_the_group_is_missing_for_sure() -> None:
    made = job(3).entered(2, 8).waits(0, seq=9).waits(1, seq=9).entered(2, 8).train(2, step_s=0.5)
    early = {(f.kind, f.severity.value) for f in made.passes(4.5).find()}
    assert early <= {("hang.rank_missing", "warning")}
    found = made.passes(3).finds()
    assert (found.kind, found.ranks, found.severity.value) == ("hang.rank_missing", (2,), "critical")


def test_an_evaluator_that_waits_for_a_rare_barrier_is_no_fault() -> None:
    made = job(3).entered(1, 1).entered(2, 1).waits(0, seq=2).train(1, 2, step_s=0.5).passes(8)
    assert all(f.severity.value != "critical" for f in made.find())


def test_a_rank_that_has_destroyed_the_group_can_never_come() -> None:
    made = job(2).waits(0, seq=5).outside(1, "predict").works(1, "io")
    made.issued(1, "DESTROY", 0, returned_s=made.now_s)
    assert made.passes(6).kinds() == {("hang.rank_missing", (1,), "critical")}


def test_who_strayed_before_it_broke_down_is_blamed_where_it_strayed() -> None:
    made = gathers(job(3), 20, {18: "snapshot", 19: "snapshot", 20: "snapshot"})
    made.stack(0, IN_BACKWARD, at("forward", line=7), TRAIN).dies(0, signal="SIGABRT")
    for rank in (1, 2):
        made.waits(rank, "ALLGATHER", seq=21, site=at("backward", line=8)).wait_raises(rank, "[gloo] reset")
    made.passes(2)
    made.state.end(1, made.now_s)
    made.report()
    (found,) = parted(scene_of(made.state))
    assert found.ranks == (0,)
    assert [(place.frame.function, place.left) for place in found.locations][:2] == [
        ("snapshot", True),
        ("forward", False),
    ]
    assert "rank 0 had gone another way since snapshot" in found.summary
