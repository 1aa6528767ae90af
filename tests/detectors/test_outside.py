"""The root of the waits is a rank outside communication: stuck, starved, stopped, elsewhere, or only late."""

from dataclasses import replace

import pytest
from tests.detectors.states import IN_LOADER, STDLIB, TORCH, TRAIN, Job, at, critical, job

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.state.model import ASKS, Ending, Frame


def two_wait_for_rank_2(hang_after_s: float = 60.0, warm: bool = True) -> Job:
    return job(3, hang_after_s, warm=warm).waits(0, seq=120).waits(1, seq=120)


def test_a_rank_stuck_in_its_own_code_is_blocked_and_the_others_wait() -> None:
    found = two_wait_for_rank_2(hang_after_s=10).outside(2, "load", line=41).passes(11).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_blocked", (2,), (0, 1))
    assert found.severity == Severity.CRITICAL
    assert (found.op_name, found.op_seq, found.group) == ("ALLREDUCE", 120, "0")
    place = found.locations[0]
    assert (place.rank, place.frame.function, place.frame.line) == (2, "load", 41)
    assert "rank 2" in found.summary
    assert "load (train.py:41)" in found.summary
    assert "ranks 0,1 wait" in found.summary


def test_just_below_the_users_patience_a_stuck_rank_is_only_likely() -> None:
    stuck = two_wait_for_rank_2(hang_after_s=20).outside(2).passes(19.5)
    assert stuck.finds().severity == Severity.WARNING
    assert stuck.passes(0.5).finds().severity == Severity.CRITICAL


def test_a_rank_that_writes_lines_is_late_and_given_three_times_the_patience() -> None:
    retries = two_wait_for_rank_2(hang_after_s=10).outside(2).works(2, "lines").passes(19)
    late = retries.finds()
    assert (late.kind, late.ranks, late.severity) == ("slow.straggler", (2,), Severity.WARNING)
    assert "it writes lines" in late.summary
    assert retries.passes(10).finds().severity == Severity.WARNING
    stuck = retries.passes(2).finds()
    assert (stuck.kind, stuck.ranks, stuck.severity) == ("hang.rank_blocked", (2,), Severity.CRITICAL)
    assert "rank 2 has done nothing but write lines for 31 s" in stuck.summary
    assert "no sign of life" not in str(stuck)


def test_a_line_before_it_is_stuck_is_no_writing_of_lines() -> None:
    stuck = two_wait_for_rank_2(hang_after_s=10).outside(2).works(2, "lines").passes(0.5).rest(2).passes(11).finds()
    assert (stuck.kind, stuck.severity) == ("hang.rank_blocked", Severity.CRITICAL)
    assert "no sign of life for 11 s" in stuck.summary


def test_a_stopped_rank_that_wrote_a_line_is_stopped() -> None:
    stopped = two_wait_for_rank_2(hang_after_s=10).outside(2).works(2, "lines").passes(5).stopped(2).passes(11)
    assert (stopped.finds().kind, stopped.finds().severity) == ("hang.rank_stopped", Severity.CRITICAL)


def test_short_waits_are_not_spoken_of() -> None:
    waiting = two_wait_for_rank_2().outside(2).passes(3.5)
    assert waiting.find() == ()
    assert waiting.passes(0.5).finds().kind == "hang.rank_blocked"


def test_a_job_without_steps_that_has_run_many_operations_is_past_its_start() -> None:
    spins = two_wait_for_rank_2(warm=False).outside(2, phase="init").works(2, "cpu")
    assert spins.passes(10).find() == ()
    for placed in spins.ranks.values():
        placed.facts.operations = 60
    assert spins.passes(1).finds().kind == "slow.straggler"


def test_a_job_with_slow_steps_is_given_longer_waits() -> None:
    slow = job(3).train(0, 1, 2, step_s=10).passes(40).rest(0, 1, 2)
    slow.waits(0, seq=9).waits(1, seq=9).outside(2).works(2, "cpu", "frames").passes(20)
    assert slow.find() == ()


@pytest.mark.parametrize("sign", ["cpu", "other_cpu", "children", "io", "memory", "frames", "operations"])
def test_a_rank_with_any_sign_of_life_is_late_and_never_critical(sign: str) -> None:
    found = two_wait_for_rank_2(hang_after_s=10).outside(2).works(2, sign).passes(120).finds()
    assert found.kind.startswith("slow.")
    assert (found.ranks, found.waiting_ranks, found.severity) == ((2,), (0, 1), Severity.WARNING)


@pytest.mark.parametrize(("since_s", "late"), [(0.0, False), (15.0, True)])
def test_who_waits_for_a_rank_that_goes_on_receiving_does_not_say_that_its_sender_is_late(
    since_s: float, late: bool
) -> None:
    groups = {"0": (0, 1, 2), "side": (1, 2)}
    made = job(3, groups=groups).waits(2, "BROADCAST", seq=1, group="side", since_s=15.0).outside(0).works(0, "cpu")
    found = made.receives(1, peer=0, since_s=since_s).passes(1.0).find()
    assert {f.ranks for f in found} == ({(0,)} if late else set())


def test_a_late_rank_that_reads_or_writes_is_slowed_by_its_host() -> None:
    assert two_wait_for_rank_2().outside(2).works(2, "io").passes(20).finds().kind == "slow.host"


def test_a_late_rank_that_computes_is_a_straggler() -> None:
    assert two_wait_for_rank_2().outside(2).works(2, "cpu", "io").passes(20).finds().kind == "slow.straggler"


def test_a_rank_that_is_late_in_the_data_loader_is_slow_data() -> None:
    late = two_wait_for_rank_2().starves(2, at("__getitem__")).works(2, "children").passes(20)
    assert late.finds().kind == "slow.data"


@pytest.mark.parametrize("phase", ["checkpoint", "eval"])
def test_a_checkpoint_or_evaluation_on_one_rank_is_at_most_worth_knowing(phase: str) -> None:
    pause = two_wait_for_rank_2(hang_after_s=10).outside(2, "save", phase=phase).works(2, "cpu", "io", "memory")
    assert {f.severity for f in pause.passes(300).find()} <= {Severity.INFO}


def test_a_first_step_that_compiles_for_minutes_raises_nothing_critical() -> None:
    start = two_wait_for_rank_2(hang_after_s=10, warm=False).outside(2, "forward").works(2, "cpu", "memory", "children")
    assert start.passes(20).find() == ()
    assert critical(start.passes(300).find()) == []


def test_a_garbage_collection_of_seconds_is_no_catastrophe() -> None:
    pause = two_wait_for_rank_2().outside(2).holds_gil(2, cpu=True).passes(15)
    assert critical(pause.find()) == []
    assert pause.goes_on(0, 1, 2).report().passes(1).find() == ()


def test_a_call_that_keeps_the_gil_and_computes_for_ever_is_blocked() -> None:
    found = two_wait_for_rank_2(hang_after_s=10).outside(2, "match").holds_gil(2, cpu=True).passes(13).finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.rank_blocked", (2,), Severity.CRITICAL)
    assert found.causes[0].key == "gil"
    assert "GIL" in found.summary


def test_a_call_that_keeps_the_gil_and_does_nothing_is_blocked() -> None:
    found = two_wait_for_rank_2(hang_after_s=10).outside(2).holds_gil(2, cpu=False).passes(13).finds()
    assert (found.kind, found.severity) == ("hang.rank_blocked", Severity.CRITICAL)


def test_a_rank_whose_stack_was_never_seen_can_still_be_called_stuck() -> None:
    found = two_wait_for_rank_2(hang_after_s=10).passes(11).finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.rank_blocked", (2,), Severity.CRITICAL)


def test_a_lock_is_called_a_lock() -> None:
    stuck = two_wait_for_rank_2(hang_after_s=10).outside(2, syscall="futex").passes(11).finds()
    assert stuck.causes[0].key == "lock"
    assert "lock" in stuck.summary


@pytest.mark.parametrize(("called", "said"), [("get", "nobody puts into it"), ("put", "it is full"), ("", "")])
def test_the_lock_of_a_queue_is_called_a_queues(called: str, said: str) -> None:
    made = two_wait_for_rank_2(hang_after_s=10).outside(2, "flush", syscall="futex")
    stack = made.ranks[2].detail.stacks[0]
    wait = Frame("wait", "/usr/lib/python3.11/threading.py", 320, user=False)
    inner = (wait, Frame(called, "/usr/lib/python3.11/queue.py", 171, user=False)) if called else (wait,)
    main = replace(stack.threads[0], frames=(*inner, *stack.threads[0].frames))
    made.ranks[2].detail = made.ranks[2].detail.with_(stacks=(replace(stack, threads=(main,)),))
    found = made.passes(11).finds()
    assert found.causes[0].key == "lock"
    assert said in found.summary
    assert ("queue" in found.summary) is bool(called)


def test_a_rank_that_waits_in_a_queue_for_a_thread_that_has_ended_is_told_of_its_error() -> None:
    stuck = two_wait_for_rank_2(hang_after_s=10).outside(2, "get", line=41, syscall="futex").loses_thread(2)
    found = stuck.passes(11).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("hang.rank_blocked", (2,), "thread")
    assert [place.frame.line for place in found.locations[:2]] == [7, 41]
    assert "its thread 'feeder' has ended with KeyError: lost, and it waits for a lock" in found.summary


@pytest.mark.parametrize(("syscall", "ago_s"), [("futex", 130.0), ("read", 0.0)])
def test_a_thread_that_ended_long_before_or_is_not_waited_for_is_no_reason(syscall: str, ago_s: float) -> None:
    waiting = job(3, 10).train(0, 1, 2).loses_thread(2).passes(ago_s).rest(0, 1, 2).waits(0, seq=99).waits(1, seq=99)
    found = waiting.outside(2, "get", line=41, syscall=syscall).passes(11).finds()
    assert found.causes[0].key == ("lock" if syscall == "futex" else "blocked")
    assert found.locations[0].frame.line == 41
    told = [evidence.what for evidence in found.causes[0].evidence if "its thread 'feeder'" in evidence.what]
    assert len(told) == (0 if ago_s else 1)  # beside the cause, where it is recent


@pytest.mark.parametrize(("pid", "who", "key"), [(None, "rank 0", "held"), (77, "process 77", "blocked")])
def test_who_holds_the_file_lock_that_a_rank_waits_for_is_said(pid: int | None, who: str, key: str) -> None:
    stuck = two_wait_for_rank_2(hang_after_s=10)
    owner = stuck.ranks[0].detail.pid if pid is None else pid
    note = f"in flock on /cache/build.lock, held by process {owner}"
    found = stuck.outside(2, "build", line=7, syscall="flock", note=note).passes(11).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("hang.rank_blocked", (2,), key)
    waits = " while it waits in ALLREDUCE #120 of group 0 itself," if pid is None else ""
    assert f"is blocked in flock() for a lock that {who} holds{waits} in build" in found.summary


def test_a_read_that_never_ends_is_named() -> None:
    assert "read()" in two_wait_for_rank_2(hang_after_s=10).outside(2, syscall="read").passes(11).finds().summary


def polls(waiting: Job, rank: int, *more: str, until_s: float = 12, **of: int) -> Job:
    """It takes turns by a key of the store that it asks for again and again, up to then."""
    waiting.outside(rank, "take", line=22, syscall="clock_nanosleep").works(rank, "operations", "frames")
    for name in (*("STORE_SET",) * 16, *more):
        waiting.did(rank, name, at("take", line=22), detail="mutex/snapshots", entered_s=waiting.now_s + until_s, **of)
    return waiting


@pytest.mark.parametrize(("hang_after_s", "severity"), [(10, Severity.CRITICAL), (60, Severity.WARNING)])
def test_ranks_that_ask_the_store_for_ever_while_all_others_wait_for_them_wait_for_its_key(
    hang_after_s: int, severity: Severity
) -> None:
    waiting = job(3, hang_after_s).waits(0, seq=120)
    found = polls(polls(waiting, 1), 2).passes(12).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.store_wait", (1, 2), (0,))
    assert (found.severity, found.names, found.causes[0].key) == (severity, ("mutex/snapshots",), "polled")
    assert {(place.rank, place.frame.line) for place in found.locations[:1]} == {(1, 22)}
    assert "no rank is left that could change it" in found.summary


def test_a_rank_that_asks_the_store_while_another_works_may_get_it_yet() -> None:
    waiting = job(3, 10).waits(0, seq=120).outside(2, "evaluate").works(2, "cpu", "frames")
    found = [f for f in polls(waiting, 1, until_s=30).passes(30).find() if f.kind == "hang.store_wait"]
    assert [(f.ranks, f.severity) for f in found] == [((1,), Severity.WARNING)]


def test_a_rank_that_does_something_else_between_is_late() -> None:
    waiting = job(2, 10).waits(0, seq=120)
    assert polls(waiting, 1, "ALLREDUCE", until_s=30).passes(30).finds().kind.startswith("slow.")


def test_a_rank_that_computes_while_another_thread_of_its_asks_or_since_it_asked_is_late() -> None:
    for of in ({"thread": 999, "until_s": 30}, {"until_s": 10}):
        waiting = job(2, 10).waits(0, seq=120)
        assert polls(waiting, 1, **of).passes(30).finds().kind.startswith("slow.")


def test_a_single_rank_that_stands_still_is_blocked_once_patience_ends() -> None:
    alone = job(1, hang_after_s=10).outside(0).passes(9.5)
    assert alone.find() == ()
    found = alone.passes(0.5).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_blocked", (0,), ())


def looked_at_once(made: Job, rank: int) -> Job:
    detail = made.ranks[rank].detail
    made.ranks[rank].detail = detail.with_(looks=detail.looks[-1:])
    return made


def test_ranks_that_stand_still_are_named_together_though_one_was_looked_at_later() -> None:
    two = looked_at_once(job(2, hang_after_s=10).outside(0).outside(1).passes(10.5), 0)
    assert two.find() == ()
    found = two.passes(2).finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.rank_blocked", (0, 1), Severity.CRITICAL)


def test_a_rank_that_cannot_be_looked_at_often_keeps_another_from_being_named_for_a_short_time_only() -> None:
    two = looked_at_once(job(2, hang_after_s=10).outside(0).outside(1).passes(14), 0)
    assert two.find() == ()
    assert looked_at_once(two.passes(2), 0).finds().ranks == (1,)


# --- data


def test_a_rank_that_waits_for_a_stuck_worker_is_starved_and_the_workers_line_is_named() -> None:
    found = two_wait_for_rank_2(hang_after_s=10).starves(2, at("__getitem__", "/job/data.py", 41)).passes(11).finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.data_starved", (2,), Severity.CRITICAL)
    assert (found.locations[0].frame.function, found.locations[0].frame.line) == ("__getitem__", 41)
    assert found.names[0] == "worker"


def test_a_rank_that_waits_for_a_dead_worker_is_starved_and_its_end_is_told() -> None:
    found = two_wait_for_rank_2(hang_after_s=10).starves(2, dead="SIGKILL").passes(11).finds()
    assert found.kind == "hang.data_starved"
    assert "SIGKILL" in found.summary


def test_a_dataset_that_blocks_in_the_rank_itself_is_starved() -> None:
    stuck = two_wait_for_rank_2(hang_after_s=10)
    stuck.stack(2, at("__getitem__", "/job/data.py", 7), IN_LOADER, TRAIN, syscall="read")
    found = stuck.passes(11).finds()
    assert (found.kind, found.locations[0].frame.line) == ("hang.data_starved", 7)


def test_a_step_loop_that_waits_for_its_own_iterator_is_starved_too() -> None:
    stuck = two_wait_for_rank_2(hang_after_s=10).stack(2, at("__next__", line=30), TRAIN)
    assert stuck.passes(11).finds().kind == "hang.rank_blocked"
    asking = two_wait_for_rank_2(hang_after_s=10).stack(2, at("__next__", line=30), TRAIN, note=f"in futex; {ASKS}")
    found = asking.passes(11).finds()
    assert (found.kind, found.locations[0].frame.line) == ("hang.data_starved", 30)


def test_a_call_that_keeps_the_gil_inside_the_dataset_is_starved() -> None:
    stuck = two_wait_for_rank_2(hang_after_s=10).holds_gil(2)
    stuck.stack(2, at("__getitem__", "/job/data.py", 7), IN_LOADER, TRAIN)
    found = stuck.passes(13).finds()
    assert (found.kind, found.causes[0].key) == ("hang.data_starved", "gil")


# --- stopped, or held by a person


def test_a_stopped_rank_is_told_within_seconds_and_critical_once_it_stays_so() -> None:
    stop = two_wait_for_rank_2(hang_after_s=10).outside(2).stopped(2).passes(2)
    found = stop.finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_stopped", (2,), (0, 1))
    assert (found.severity, found.sure) == (Severity.WARNING, True)
    assert stop.passes(7).finds().severity is Severity.WARNING
    assert stop.passes(1).finds().severity is Severity.CRITICAL


def test_a_moment_in_state_t_is_no_stop() -> None:
    stop = two_wait_for_rank_2().outside(2).works(2, "cpu").passes(1).stopped(2).passes(1.5)
    assert stop.find() == ()


def test_what_its_children_do_is_no_sign_of_life_of_a_stopped_rank() -> None:
    stop = two_wait_for_rank_2(hang_after_s=10).outside(2).stopped(2).works(2, "children", "memory").passes(12)
    found = stop.finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.rank_stopped", (2,), Severity.CRITICAL)


def test_a_rank_stopped_inside_an_operation_that_all_have_entered_is_the_culprit() -> None:
    found = job(3).waits(0, seq=5).waits(1, seq=5).waits(2, seq=5).stopped(2).passes(5).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_stopped", (2,), (0, 1))


def test_two_ranks_stopped_inside_one_operation_are_no_circle() -> None:
    stop = job(4)
    for rank in range(4):
        stop.waits(rank, seq=5)
    found = stop.stopped(1, 2).passes(5).find()
    assert {f.kind for f in found} == {"hang.rank_stopped"}
    assert {r for f in found for r in f.ranks} == {1, 2}
    assert all(set(f.waiting_ranks) <= {0, 3} for f in found)


@pytest.mark.parametrize("inside", [False, True])
def test_a_job_that_is_suspended_as_a_whole_is_not_critical(inside: bool) -> None:
    suspended = job(3)
    for rank in range(3):
        if inside:
            suspended.waits(rank, seq=5)
        else:
            suspended.outside(rank)
    found = suspended.stopped(0, 1, 2).passes(300).find()
    assert [(f.kind, f.ranks, f.severity) for f in found] == [("hang.rank_stopped", (0, 1, 2), Severity.WARNING)]


@pytest.mark.parametrize("who", ["pdb", "prompt", "ptrace by 123"])
def test_a_rank_that_a_person_holds_is_never_called_hung(who: str) -> None:
    held = two_wait_for_rank_2(hang_after_s=10).outside(2, "interaction").held_by(2, who).passes(600)
    assert {f.severity for f in held.find()} == {Severity.INFO}


def test_a_rank_stopped_by_a_debugger_is_only_worth_knowing() -> None:
    held = two_wait_for_rank_2(hang_after_s=10).stopped(2).held_by(2, "ptrace by 9").passes(600)
    assert {f.severity for f in held.find()} == {Severity.INFO}


# --- on another path


def test_a_rank_that_goes_on_with_its_steps_never_entered() -> None:
    found = two_wait_for_rank_2().outside(2).train(2).passes(10).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_missing", (2,), (0, 1))
    assert found.causes[0].key == "path"


def test_all_ranks_that_passed_an_operation_by_are_one_finding() -> None:
    found = job(4).waits(0, seq=9).waits(1, seq=9).outside(2).outside(3).train(2, 3).passes(10).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_missing", (2, 3), (0, 1))
    assert found.summary.startswith("ranks 2,3 never entered ALLREDUCE #9 of group 0 and go on with their own steps")
    assert {place.rank for place in found.locations} == {2, 3}


def test_one_step_more_is_not_another_path() -> None:
    late = two_wait_for_rank_2().outside(2).train(2).passes(1).rest(2).works(2, "cpu").passes(6)
    assert "hang.rank_missing" not in {f.kind for f in late.find()}


def test_a_partner_that_goes_on_leaves_its_recv_unmatched() -> None:
    found = job(2).receives(0, peer=1).outside(1).train(1).passes(10).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.p2p_unmatched", (1,), (0,))


def test_a_rank_on_another_path_is_critical_once_the_others_wait_ran_out() -> None:
    over = two_wait_for_rank_2().outside(2).train(2).passes(10)
    over.wait_raises(0, "Timed out waiting 10000ms for recv operation to complete", ends=True).passes(1)
    assert ("hang.rank_missing", (2,), "critical") in over.kinds()


def test_an_evaluator_that_waits_for_a_rare_barrier_raises_nothing_critical() -> None:
    rare = job(4, hang_after_s=10, groups={"train": (0, 1, 2)}).waits(3, "BARRIER", seq=7)
    assert critical(rare.train(0, 1, 2).passes(120).find()) == []


def test_a_rank_of_which_nothing_comes_any_more_is_not_blamed_for_that_alone() -> None:
    silent = two_wait_for_rank_2(hang_after_s=10).works(2, "cpu").passes(2).silent(2).passes(120)
    assert critical(silent.find()) == []


# --- a wait that ran out, and chains


def test_a_late_rank_is_critical_when_the_others_wait_ran_out() -> None:
    over = two_wait_for_rank_2().outside(2, "full_checkpoint", phase="checkpoint").works(2, "cpu", "io").passes(8)
    over.wait_raises(0, "Timed out").wait_raises(1, "Timed out").passes(6)
    found = over.finds()
    assert (found.ranks, found.severity) == ((2,), Severity.CRITICAL)
    assert found.kind.startswith("slow.")


def test_of_waits_that_broke_at_once_no_late_rank_is_the_cause() -> None:
    broke = two_wait_for_rank_2().outside(2, "training_epoch").works(2, "cpu", "io").passes(0.1)
    broke.wait_raises(0).wait_raises(1).passes(6)
    assert [one for one in broke.find() if one.ranks == (2,)] == []


def test_of_a_chain_only_the_end_is_named() -> None:
    chain = job(3, hang_after_s=10, groups={"a": (0, 1), "b": (1, 2)})
    found = chain.waits(0, seq=4, group="a").waits(1, seq=9, group="b").outside(2).passes(11).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_blocked", (2,), (0, 1))
    assert found.group == "b"


def test_a_chain_through_send_and_recv_ends_at_the_stuck_rank() -> None:
    chain = job(4, hang_after_s=10).receives(3, peer=2).receives(2, peer=1).receives(1, peer=0)
    found = chain.outside(0).passes(11).finds()
    assert (found.ranks, found.waiting_ranks) == ((0,), (1, 2, 3))


def test_a_wait_in_backward_counts_as_a_wait() -> None:
    stuck = job(3, hang_after_s=10).waits_in_backward(0, seq=30).waits_in_backward(1, seq=30).entered(2, 29)
    found = stuck.outside(2).passes(11).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_blocked", (2,), (0, 1))


def test_a_recorder_that_lags_does_not_make_a_rank_in_user_code_wait() -> None:
    lag = job(3, hang_after_s=10).waits(0, seq=31).waits(1, seq=31)
    lag.recorded(2, "ALLREDUCE", 30, retired=False).outside(2, "load").passes(11)
    found = lag.finds()
    assert (found.kind, found.ranks) == ("hang.rank_blocked", (2,))


@pytest.mark.parametrize("file", ["serialization.py", "utils/file_baton.py", "_inductor/compile_fx.py", "storage.py"])
def test_a_recorder_that_lags_does_not_make_a_rank_elsewhere_in_torch_wait(file: str) -> None:
    lag = job(3, hang_after_s=10).waits(0, seq=31).waits(1, seq=31)
    lag.recorded(2, "ALLREDUCE", 30, retired=False)
    lag.stack(2, Frame("wait", f"{TORCH}/{file}", 40, user=False), at("save"), TRAIN).passes(11)
    found = lag.finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_blocked", (2,), (0, 1))


def test_a_rank_stuck_in_the_standard_library_is_named_by_its_own_line() -> None:
    stuck = two_wait_for_rank_2(hang_after_s=10)
    stuck.stack(2, Frame("readinto", f"{STDLIB}/socket.py", 700, user=False), at("fetch"), TRAIN, syscall="recvfrom")
    assert stuck.passes(11).finds().locations[0].frame.function == "fetch"


def test_a_rank_that_rests_while_another_works_may_wait_for_it_unseen() -> None:
    """Such as for the lock of a compilation that the other does."""
    made = job(2).outside(0, "compile").works(0, "children").outside(1, "wait_for_lock").passes(30)
    assert made.find() == ()


def test_a_job_in_which_nothing_moves_is_told_though_no_rank_waits_for_another() -> None:
    made = job(2, hang_after_s=10).outside(0, "read", 5).outside(1, "write", 6).passes(12)
    assert {f.kind for f in made.find()} == {"hang.rank_blocked"}


def test_a_broken_wait_is_not_laid_at_once_to_a_rank_that_may_be_dying() -> None:
    made = job(2).waits(0, seq=5).outside(1).works(1, "cpu").passes(2).wait_raises(0).passes(2)
    assert {(f.kind, f.severity.value) for f in made.find()} <= {("slow.straggler", "warning")}
    assert {(f.kind, f.severity.value) for f in made.passes(4).find()} == {("slow.straggler", "critical")}


def test_a_broken_wait_of_a_job_that_has_ended_is_laid_to_the_late_rank() -> None:
    made = job(2).waits(0, seq=5).outside(1).works(1, "cpu").passes(2).wait_raises(0).passes(1)
    made.state.end(1, made.now_s)
    assert made.finds().severity.value == "critical"


def test_a_rank_whose_program_is_over_is_not_late() -> None:
    made = job(2).waits(0, seq=5).outside(1).works(1, "cpu", "memory").passes(5)
    assert made.finds().kind == "slow.straggler"
    made.leaves(1, Ending("exception", "ValueError", "bad sample", 1, (at("load", line=12),), made.now_s))
    assert not any(f.kind.startswith("slow.") for f in made.passes(1).find())


def test_all_that_sleep_at_once_are_given_more_time_than_a_rank_that_is_blocked() -> None:
    pause = job(2, hang_after_s=10)
    for rank in (0, 1):
        pause.outside(rank, "rest", syscall="clock_nanosleep")
    found = pause.passes(14).finds()
    assert (found.severity, found.ranks) == (Severity.WARNING, (0, 1))
    assert "sleeps in rest" in found.summary
    assert pause.passes(13).finds().severity is Severity.CRITICAL


def test_a_rank_that_sleeps_beside_one_that_is_blocked_is_given_no_more_time() -> None:
    mixed = job(2, hang_after_s=10).outside(0, "rest", syscall="clock_nanosleep").outside(1, "fetch", syscall="futex")
    assert {f.severity for f in mixed.passes(14).find()} == {Severity.CRITICAL}
