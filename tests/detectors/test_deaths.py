"""Which ended rank ended of itself, and what it means for the others."""

from typing import Any

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import TORCH, TRAIN, Job, at, critical, job

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.position import waits_of
from diagd.daemon.incidents.catalog import entry
from diagd.daemon.state.model import Ending, Frame, Operation


def two_wait(world: int = 3) -> Job:
    """All but the last rank wait at #120."""
    waiting = job(world)
    for rank in range(world - 1):
        waiting.waits(rank, seq=120)
    return waiting


# --- exit.error


def test_an_exception_of_its_own_is_an_error_and_names_its_line() -> None:
    found = two_wait().raises(2, "ValueError", "bad sample 17").passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("exit.error", (2,), (0, 1))
    assert (found.severity, found.sure) == (Severity.CRITICAL, True)
    assert found.names[0] == "ValueError"
    assert (found.locations[0].frame.function, found.locations[0].frame.line) == ("load", 12)
    assert "bad sample 17" in found.summary


def test_of_a_lone_process_nothing_is_said_of_other_ranks() -> None:
    alone = job(1).raises(0, "ValueError", "x").passes(2).finds()
    fixes = entry(alone.kind).fix(alone.causes[0].key).as_json()
    assert "other" not in f"{alone.summary} {alone.causes[0].text} {fixes}"
    assert "other ranks" in two_wait().raises(2).passes(2).finds().causes[0].text


def test_an_error_of_all_ranks_is_no_ones_and_no_consequence() -> None:
    failed = job(2).raises(0, "FileNotFoundError", "no such file").raises(1, "FileNotFoundError", "no such file")
    found = failed.passes(2).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("exit.error", (0, 1), "everywhere")
    assert "other" not in f"{found.summary} {found.causes[0].text}"
    assert "no rank's fault" in str(entry(found.kind).fix("everywhere").as_json())


@pytest.mark.parametrize(
    "said",
    ["DataLoader worker (pid 77) is killed by signal: Killed. ", "DataLoader worker (pid(s) 77) exited unexpectedly"],
)
def test_a_data_worker_that_was_killed_is_no_error_of_the_script(said: str) -> None:
    found = two_wait().raises(2, "RuntimeError", said).passes(2).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("exit.error", (2,), "worker")
    assert "out-of-memory killer" in str(entry(found.kind).fix("worker").as_json())
    raised = "Caught KeyError in DataLoader worker process 0. KeyError: 7"
    assert two_wait().raises(2, "KeyError", raised).passes(2).finds().causes[0].key == "exception"


def test_parameters_that_took_no_part_in_the_step_before_are_told_as_the_reason() -> None:
    said = "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates"
    found = two_wait().raises(2, "RuntimeError", said).passes(2).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("exit.error", (2,), "unused")


def test_a_nonzero_exit_without_an_exception_is_an_error() -> None:
    found = two_wait().dies(2, code=3, ending=Ending("exit", code=3, frames=(at("quit_"),))).passes(2).finds()
    assert (found.kind, found.ranks) == ("exit.error", (2,))
    assert "3" in found.summary


def test_those_that_fall_after_the_first_are_not_named() -> None:
    fall = two_wait().raises(2).passes(0.5).wait_raises(0).wait_raises(1).passes(2)
    assert fall.kinds() == {("exit.error", (2,), "critical")}
    assert fall.finds().waiting_ranks == (0, 1)


def test_ranks_that_fail_alike_at_the_same_line_are_all_named() -> None:
    alike = job(3).raises(0).raises(1).raises(2).passes(1)
    assert alike.kinds() == {("exit.error", (0, 1, 2), "critical")}


def test_the_first_of_two_different_failures_is_named() -> None:
    two = job(3).raises(1, "ValueError", "x").passes(0.5).raises(0, "KeyError", "y", at("other", line=99)).passes(1)
    assert two.kinds() == {("exit.error", (1,), "critical")}


@pytest.mark.parametrize(
    "message", ["[Errno 104] Connection reset by peer", "Read Timed out.", "[Errno 32] Broken pipe"]
)
def test_a_broken_connection_of_the_users_own_is_an_error(message: str) -> None:
    fetch = two_wait().recorded(2, "ALLREDUCE", 119, retired=False).raises(2, "ConnectionError", message)
    assert fetch.passes(2).kinds() == {("exit.error", (2,), "critical")}


def test_a_worker_whose_connection_broke_is_an_error() -> None:
    again = Frame("reraise", f"{TORCH}/_utils.py", 733, user=False)
    message = "Caught ConnectionResetError in DataLoader worker process 0. [Errno 104] Connection reset by peer"
    lost = two_wait().recorded(2, "ALLREDUCE", 119, retired=False).raises(2, "RuntimeError", message, again, TRAIN)
    assert lost.passes(2).kinds() == {("exit.error", (2,), "critical")}


def test_an_assertion_without_words_after_a_key_that_was_given_up_is_an_error() -> None:
    asks = two_wait().wants_key(2, "stop").passes(0.5).wait_raises(2, "wait timeout after 100ms", ends=False)
    assert asks.passes(2).raises(2, "AssertionError", "").passes(2).kinds() == {("exit.error", (2,), "critical")}


def test_an_exception_while_a_thread_waits_is_still_an_error() -> None:
    threaded = two_wait().waits(2, "BARRIER", seq=0, thread=77).raises(2)
    assert threaded.passes(2).kinds() == {("exit.error", (2,), "critical")}


def test_an_exception_whose_process_cannot_end_is_an_error_and_no_early_exit() -> None:
    ending = Ending("exception", "ValueError", "bad sample", 1, (at("load", line=12),))
    found = two_wait().leaves(2, ending).passes(3).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("exit.error", (2,), (0, 1))


# --- consequences of a wait


@pytest.mark.parametrize("how", ["raises", "aborts"])
def test_an_end_inside_a_wait_is_a_consequence_of_what_it_waited_for(how: str) -> None:
    stuck = job(3, hang_after_s=10).waits(0, seq=120).waits(1, seq=120).outside(2).passes(11)
    if how == "raises":
        stuck.wait_raises(0, "Timed out waiting 10000ms for recv operation to complete")
    else:
        stuck.dies(0, signal="SIGABRT")
    found = stuck.passes(1).finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.rank_blocked", (2,), Severity.CRITICAL)
    assert found.waiting_ranks == (0, 1)


def test_an_exception_out_of_backward_is_a_consequence() -> None:
    stuck = job(3, hang_after_s=10).waits_in_backward(0, seq=30).waits_in_backward(1, seq=30).outside(2).passes(11)
    frame = Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 824, user=False)
    stuck.raises(0, "RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection closed by peer", frame, TRAIN)
    found = stuck.passes(1).finds()
    assert (found.kind, found.ranks) == ("hang.rank_blocked", (2,))


def test_a_dead_rank_stands_at_its_newest_unfinished_operation_where_an_older_one_was_only_not_marked() -> None:
    stuck = job(3, hang_after_s=10, groups={"tp": (0, 1)}).recorded(0, "ALLGATHER", 3, "tp", retired=False).passes(1)
    stuck.recorded(0, "ALLREDUCE", 29).passes(1).waits_in_backward(0, seq=30).waits_in_backward(1, seq=30).outside(2)
    frame = Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 824, user=False)
    stuck.passes(11).raises(0, "RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection closed by peer", frame)
    stuck.passes(1)
    assert [(wait.op.group, wait.op.seq) for wait in waits_of(stuck.state, 0)] == [("0", 30)]


def test_a_rank_that_hangs_on_its_way_out_of_a_failed_wait_does_not_hide_the_cause() -> None:
    stuck = job(4, hang_after_s=10).waits(0, seq=120).waits(1, seq=120).receives(3, peer=0).outside(2).passes(11)
    stuck.wait_raises(0, "Timed out", ends=False)
    stuck.leaves(0, Ending("exception", "RuntimeError", "Timed out", 1, (TRAIN,), stuck.now_s)).passes(4)
    assert "hang.rank_blocked" in {f.kind for f in stuck.find()}
    assert not any(f.kind.startswith("exit.") for f in stuck.find())


# --- exit.killed


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSEGV", "SIGBUS", "SIGABRT"])
def test_a_signal_outside_a_wait_is_a_kill(signal: str) -> None:
    found = two_wait().outside(2).dies(2, signal=signal).passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("exit.killed", (2,), (0, 1))
    assert signal in found.names
    assert signal in found.summary


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSEGV"])
def test_a_kill_inside_a_wait_is_still_a_kill_and_the_others_wait(signal: str) -> None:
    inside = two_wait().waits(2, seq=120).passes(0.5).dies(2, signal=signal).passes(2)
    found = inside.finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("exit.killed", (2,), (0, 1))


@pytest.mark.parametrize("left", [Ending("shutdown"), Ending("exit", code=0, frames=(TRAIN,))])
def test_a_crash_in_the_interpreters_shutdown_is_not_laid_to_the_scripts_last_place(left: Ending) -> None:
    found = job(2).dies(0, code=0).dies(1, signal="SIGABRT", ending=left).passes(1).finds()
    assert (found.kind, found.ranks, found.locations) == ("exit.killed", (1,), ())
    assert "after its script had ended" in found.summary
    assert found.causes[0].key == "crash_at_exit"


@pytest.mark.parametrize(
    ("signal", "left"), [("SIGABRT", Ending("exit", code=3, frames=(TRAIN,))), ("SIGKILL", Ending("shutdown"))]
)
def test_another_end_in_the_shutdown_keeps_its_own_words(signal: str, left: Ending) -> None:
    found = job(2).dies(0, code=0).dies(1, signal=signal, ending=left).passes(1).finds()
    assert (found.kind, found.ranks) == ("exit.killed", (1,))
    assert "after its script had ended" not in found.summary


def test_ranks_killed_at_the_same_moment_are_all_named() -> None:
    node = two_wait(4).dies(2, signal="SIGKILL").dies(3, signal="SIGKILL").passes(1).finds()
    assert (node.kind, node.ranks, node.waiting_ranks) == ("exit.killed", (2, 3), (0, 1))


def test_of_two_kills_the_later_one_is_not_named() -> None:
    two = two_wait(4).outside(2).dies(2, signal="SIGKILL").passes(0.5).dies(3, signal="SIGKILL").passes(1).finds()
    assert (two.kind, two.ranks) == ("exit.killed", (2,))


def test_the_out_of_memory_killer_is_named() -> None:
    found = two_wait().dies(2, signal="SIGKILL", oom_killed=True).passes(1).finds()
    assert (found.kind, found.causes[0].key) == ("exit.killed", "oom")
    assert "out-of-memory" in found.summary


def test_memory_that_grew_before_a_kill_is_told() -> None:
    grown = two_wait()
    growth = ((grown.now_s - 90, 10**9), (grown.now_s, 60 * 10**9))
    grown.ranks[2].detail = grown.ranks[2].detail.with_(rss_history=growth)
    found = grown.dies(2, signal="SIGKILL").passes(1).finds()
    assert found.causes[0].key == "oom"
    assert any("memory grew" in e.what for e in found.causes[0].evidence)


@pytest.mark.parametrize("sizes", [(170, 310, 310, 312), (900, 310, 310, 311)])
def test_memory_that_has_long_levelled_off_is_no_reason_for_a_kill(sizes: tuple[int, ...]) -> None:
    steady = two_wait()
    growth = tuple((steady.now_s - 40 + 10 * n, size * 2**20) for n, size in enumerate(sizes))
    steady.ranks[2].detail = steady.ranks[2].detail.with_(rss_history=growth)
    assert steady.dies(2, signal="SIGKILL").passes(1).finds().causes[0].key == "killed"


def test_a_kill_is_told_at_once_also_where_no_one_waits() -> None:
    assert job(2).train(0).dies(1, signal="SIGKILL").passes(0.5).kinds() == {("exit.killed", (1,), "critical")}


def test_an_end_that_no_one_saw_is_a_kill_where_others_wait_for_it() -> None:
    found = two_wait().dies(2).passes(3).finds()
    assert (found.kind, found.ranks) == ("exit.killed", (2,))
    assert found.causes[0].confidence < 0.7
    assert "not seen" in found.summary


def test_an_end_that_no_one_saw_is_an_error_where_an_exception_was_noted() -> None:
    ending = Ending("exception", "ValueError", "bad", 1, (at("load"),))
    assert two_wait().dies(2, ending=ending).passes(1).finds().kind == "exit.error"


def test_an_end_that_no_one_saw_and_no_one_misses_is_quiet() -> None:
    assert job(2).train(0).dies(1).passes(3).find() == ()


def test_one_that_called_exit_in_the_handler_of_its_error_failed_with_that_at_its_place() -> None:
    handled = Ending("exit", "MemoryError", "10 TB", 1, (at("attend", line=40), TRAIN))
    found = two_wait().dies(2, code=1, ending=handled).passes(2).finds()
    assert (found.kind, found.ranks, found.locations[0].frame.line) == ("exit.error", (2,), 40)
    assert "failed with MemoryError: 10 TB in attend" in found.summary
    assert any("exit called with 1 in the handler of MemoryError" in e.what for e in found.causes[0].evidence)


def test_one_that_called_exit_because_its_wait_broke_is_a_consequence() -> None:
    broken = "Connection closed by peer"
    job_ = two_wait().dies(2, code=1).passes(0.5).wait_raises(0, broken, ends=False)
    job_.dies(0, code=75, ending=Ending("exit", "RuntimeError", broken, 75, (TRAIN,), job_.now_s))
    assert job_.passes(1).finds().ranks == (2,)


# --- exit.early


def test_a_rank_that_returns_while_others_wait_left_early() -> None:
    found = two_wait().dies(2, code=0).passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("exit.early", (2,), (0, 1))


def test_a_rank_that_returns_while_others_only_work_is_quiet() -> None:
    assert job(3).train(0, 1).dies(2, code=0).passes(30).find() == ()


def test_ranks_that_end_one_after_the_other_are_quiet() -> None:
    end = job(3).dies(2, code=0).passes(1).dies(1, code=0).outside(0, "save").works(0, "io").passes(5)
    assert end.find() == ()
    assert end.dies(0, code=0).passes(1).find() == ()


def test_all_ranks_that_returned_too_soon_are_named() -> None:
    left = job(4).waits(0, seq=120).waits(1, seq=120)
    found = left.dies(3, code=0).passes(1).dies(2, code=0).passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("exit.early", (2, 3), (0, 1))


def test_a_wait_of_a_second_for_one_that_has_left_may_still_end() -> None:
    left = two_wait().dies(2, code=0).passes(1)
    assert left.find() == ()
    assert left.passes(0.5).finds().kind == "exit.early"


def test_of_an_operation_whose_place_is_not_known_yet_the_rank_that_left_may_have_been_part() -> None:
    for left in (job(2).waits(0).leaves(1), job(2).waits(0).dies(1, code=0)):
        assert left.passes(4).find() == ()
        assert left.passes(7).finds().kind == "exit.early"


def test_a_rank_in_interpreter_shutdown_that_others_wait_for_left_early() -> None:
    leaving = two_wait().leaves(2).passes(2.5)
    assert leaving.find() == ()  # its exit code may say that it failed
    found = leaving.passes(0.5).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("exit.early", (2,), (0, 1))
    assert "shutdown" in found.summary
    assert len({e.what for e in found.causes[0].evidence}) == len(found.causes[0].evidence) == 1


def test_one_that_called_exit_is_not_said_to_have_run_out_of_batches() -> None:
    called = Ending("exit", code=0, frames=(TRAIN,))
    for left in (two_wait().leaves(2, called), two_wait().dies(2, code=0, ending=called)):
        (cause,) = left.passes(2).finds().causes
        assert "exit itself" in cause.text
        assert "batches" not in cause.text
        assert any("exit called with 0" in e.what for e in cause.evidence)
    assert "batches" in two_wait().dies(2, code=0).passes(2).finds().causes[0].text


def test_one_that_catches_its_error_and_calls_exit_with_0_gave_up_on_that_error() -> None:
    gave_up = Ending("exit", "ValueError", "corrupt record 8812", 0, (at("decode", line=9), TRAIN))
    for left in (two_wait().leaves(2, gave_up), two_wait().dies(2, code=0, ending=gave_up)):
        found = left.passes(2).finds()
        assert (found.kind, found.ranks, found.causes[0].key) == ("exit.early", (2,), "handled")
        assert found.locations[0].frame.line == 9
        assert any("in the handler of ValueError: corrupt record 8812" in e.what for e in found.causes[0].evidence)
        assert "(last seen in decode (train.py:9)) while others still work" in found.summary


def test_a_script_that_calls_exit_as_its_last_line_has_come_to_its_end() -> None:
    called = Ending("exit", code=0, frames=(at("<module>", line=16),))
    assert "batches" in two_wait().dies(2, code=0, ending=called).passes(2).finds().causes[0].text


def test_an_operation_known_only_by_its_number_is_called_no_name() -> None:
    found = job(2).waits(0, "COLLECTIVE", seq=102).dies(1, code=0).passes(12).finds()
    assert "in operation #102" in found.summary


def test_a_rank_in_interpreter_shutdown_that_no_one_waits_for_is_quiet() -> None:
    assert job(2).train(0).leaves(1).passes(20).find() == ()


def test_a_rank_that_ends_itself_with_a_code_is_told_so_and_not_that_its_script_was_done() -> None:
    found = two_wait().leaves(2).dies(2, code=3).passes(2).finds()
    assert (found.kind, found.ranks) == ("exit.error", (2,))
    assert "it ended itself with exit code 3" in found.causes[0].text
    assert [e.what for e in found.causes[0].evidence][1:] == ["the interpreter's shutdown had begun"]


def test_a_rank_that_left_and_made_the_others_fall_left_early() -> None:
    fell = two_wait().dies(2, code=0).passes(0.5).wait_raises(0).wait_raises(1).passes(0.5).finds()
    assert (fell.kind, fell.ranks) == ("exit.early", (2,))


def broken_in_backward(step: int = 9, message: str = "[gloo/transport] Connection closed by peer") -> Job:
    """Rank 2 has left; the backward passes of the others broke, their script caught that and returned as well."""
    fell = job(3).dies(2, code=0, ending=Ending("shutdown")).passes(0.5)
    for rank in (0, 1):
        fell.entered(rank, seq=120).report()
        fell.state.signals.put_fact(rank, "backward/broke", step, f"RuntimeError: {message}\t\t0\t")
        fell.dies(rank, code=0, ending=Ending("shutdown"))
    fell.passes(1)
    fell.state.end(0, fell.now_s)
    return fell


def test_of_a_job_that_ends_well_because_its_errors_were_caught_it_is_told_who_left() -> None:
    (found,) = broken_in_backward().find()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("exit.early", (2,), (0, 1))


@pytest.mark.parametrize("how", [{"step": 8}, {"message": "CUDA out of memory"}])
def test_a_pass_that_broke_before_the_last_step_or_of_itself_tells_nothing(how: dict[str, Any]) -> None:
    assert broken_in_backward(**how).find() == ()


def test_who_left_is_named_and_not_who_crashed_on_the_way_out_after_that() -> None:
    fell = two_wait().leaves(2).passes(0.5).wait_raises(1, ends=False).leaves(1)
    fell.wait_raises(0, ends=False).leaves(0).passes(0.5).dies(0, signal="SIGABRT").passes(0.2)
    found = fell.dies(1, signal="SIGTERM").dies(2, signal="SIGTERM").passes(1).finds()
    assert (found.kind, found.ranks) == ("exit.early", (2,))


def test_a_rank_that_served_a_store_and_left_while_others_still_ask_it_left_early() -> None:
    gone = (
        "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown?"
    )
    served = job(3).train(2).waits(1, "STORE_GET", detail="scores/2", site=at("collect", line=49)).passes(2)
    served.leaves(0).passes(0.1).wait_raises(1, gone)
    found = served.passes(3).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("exit.early", (0,), "host")
    assert "TCPStore" in str(entry(found.kind).fix("host").as_json())
    lost = job(3).train(2).waits(1, "STORE_GET", detail="scores/2").passes(2).leaves(0).passes(20).wait_raises(1, gone)
    assert all(one.ranks != (0,) for one in lost.passes(2).find())  # long before: it was another's


# --- wanted ends


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
def test_the_launchers_teardown_after_a_death_is_a_consequence(signal: str) -> None:
    torn = two_wait().raises(2).passes(3).dies(0, signal=signal).dies(1, signal=signal).passes(1)
    assert torn.kinds() == {("exit.error", (2,), "critical")}


def test_a_kill_by_the_launcher_seen_before_the_error_that_caused_it_is_a_consequence() -> None:
    swapped = two_wait().dies(0, signal="SIGTERM", ago_s=0.02).raises(2).passes(1)
    assert swapped.kinds() == {("exit.error", (2,), "critical")}


def test_a_scheduler_that_ends_all_ranks_at_once_is_quiet() -> None:
    assert (
        job(3)
        .train(0, 1, 2)
        .dies(0, signal="SIGTERM")
        .dies(1, signal="SIGTERM")
        .dies(2, signal="SIGTERM")
        .passes(5)
        .find()
        == ()
    )


def test_a_scheduler_that_ends_all_ranks_in_the_middle_of_a_wait_is_quiet() -> None:
    ended = two_wait().outside(2).works(2, "cpu").passes(1)
    for rank in range(3):
        ended.dies(rank, signal="SIGTERM")
    assert ended.passes(5).find() == ()


def test_a_scheduler_that_ends_the_ranks_one_after_the_other_is_quiet_where_the_launcher_heard_it_too() -> None:
    ending = job(3).train(0, 1, 2)
    ending.state.stopping_s = ending.now_s
    for rank in range(3):
        assert ending.passes(0.5).dies(rank, signal="SIGTERM").passes(0.5).find() == ()


def test_one_rank_that_someone_ends_alone_is_a_kill() -> None:
    assert two_wait().outside(2).dies(2, signal="SIGTERM").passes(4).kinds() == {("exit.killed", (2,), "critical")}


def test_one_rank_that_is_interrupted_alone_has_failed_where_it_was() -> None:
    held = Ending("exception", "KeyboardInterrupt", "", 1, (at("kappa_window", line=48), TRAIN))
    alone = two_wait().dies(2, signal="SIGINT", ending=held).passes(1)
    assert alone.find() == ()  # the others may be about to be, too
    found = alone.passes(5).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("exit.error", (2,), "interrupted")
    assert found.locations[0].frame.function == "kappa_window"
    torn = two_wait().dies(2, signal="SIGINT", ending=held).passes(0.3).dies(0, signal="SIGTERM").passes(0.3)
    assert torn.finds().ranks == (2,)


def test_who_waits_in_a_later_operation_of_the_group_waits_for_the_one_that_was_killed_in_an_earlier() -> None:
    killed = job(3)
    for rank in range(3):
        killed.issued(rank, "ALLREDUCE", 10).issued(rank, "ALLREDUCE", 11)
    killed.waits(0, seq=11).waits(1, seq=11).waits(2, seq=10).passes(0.5).dies(2, signal="SIGKILL")
    found = killed.passes(3).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("exit.killed", (2,), (0, 1))


def test_ctrl_c_is_quiet_whichever_way_the_ranks_end() -> None:
    held = Ending("exception", "KeyboardInterrupt", "", 1, (TRAIN,))
    stop = job(3).train(0, 1, 2).dies(0, signal="SIGINT", ending=held).passes(0.5)
    assert stop.find() == ()
    stop.dies(1, code=1, ending=held).passes(0.5)
    assert stop.find() == ()
    assert stop.dies(2, signal="SIGTERM").passes(3).find() == ()


def test_deaths_after_diagd_began_to_end_the_job_are_wanted() -> None:
    ended = job(2).train(0, 1)
    ended.state.stopping_s = ended.now_s
    assert ended.passes(1).dies(0, signal="SIGKILL").raises(1).passes(1).find() == ()


def test_a_job_that_has_ended_well_is_quiet() -> None:
    over = job(2).dies(0, code=0).dies(1, code=0).passes(1)
    over.state.end(0, over.now_s)
    assert over.find() == ()


# --- elastic restart


def test_the_deaths_of_an_earlier_attempt_are_over_once_a_rank_has_come_back() -> None:
    again = two_wait().dies(2, signal="SIGKILL").passes(1).dies(0, signal="SIGTERM").dies(1, signal="SIGTERM").passes(1)
    assert again.kinds() == {("exit.killed", (2,), "critical")}
    again.restarts(0).works(0, "cpu").passes(2)
    assert critical(again.find()) == []
    assert again.restarts(1, 2).works(1, "cpu").works(2, "cpu").passes(5).find() == ()


def test_a_death_of_the_new_attempt_is_told_again() -> None:
    again = two_wait().dies(2, signal="SIGKILL").passes(1).restarts(0, 1, 2).passes(2)
    again.waits(0, seq=3).waits(1, seq=3).dies(2, signal="SIGKILL").passes(1)
    assert again.kinds() == {("exit.killed", (2,), "critical")}


# --- more than one fault


def test_a_death_explains_what_the_others_do_after_it() -> None:
    fell = two_wait(4).dies(3, signal="SIGKILL").passes(70)
    assert fell.kinds() == {("exit.killed", (3,), "critical")}


def test_two_independent_stuck_ranks_are_two_findings() -> None:
    two = job(4, hang_after_s=10, groups={"a": (0, 1), "b": (2, 3)})
    two.waits(0, seq=1, group="a").outside(1).waits(2, seq=1, group="b").outside(3, "other", 60).passes(11)
    assert two.kinds() == {("hang.rank_blocked", (1,), "critical"), ("hang.rank_blocked", (3,), "critical")}


def test_a_mismatch_and_a_stuck_rank_in_other_groups_are_two_findings() -> None:
    two = job(4, hang_after_s=10, groups={"a": (0, 1), "b": (2, 3)})
    two.waits(0, seq=1, group="a").waits(1, "BARRIER", seq=1, group="a")
    two.waits(2, seq=1, group="b").outside(3).passes(11)
    assert two.kinds() == {("hang.collective_mismatch", (0, 1), "critical"), ("hang.rank_blocked", (3,), "critical")}


def test_a_rank_that_does_not_get_its_port_is_at_fault_and_not_those_that_would_have_joined_it() -> None:
    message = "The server socket has failed to listen on any local network address. port: 28999, code: -98"
    made = job(3, 0).initialises(1).initialises(2).initialises(0).passes(0.1).wait_raises(0, message)
    found = made.passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks, found.causes[0].key) == ("exit.error", (0,), (1, 2), "port")


def test_a_thread_that_keeps_a_rank_in_its_shutdown_is_named_with_its_place() -> None:
    left = two_wait().leaves(2).stack(2, Frame("_shutdown", "/usr/lib/python3.11/threading.py", 1590, user=False))
    left.beside(
        2,
        "uploader",
        Frame("wait", "/usr/lib/python3.11/threading.py", 320, user=False),
        at("push", "/job/train.py", 32),
    )
    found = left.passes(3).finds()
    assert (found.kind, found.ranks) == ("exit.early", (2,))
    assert "its thread 'uploader' in push (train.py:32) keeps the process there" in found.summary
    assert found.locations[-1].frame.line == 32
    left.beside(2, "heartbeat", at("beat", "/job/train.py", 12))
    assert "keeps the process there" not in left.passes(1).finds().summary  # which of the two is no daemon is not known


@pytest.mark.parametrize(("attempt", "key"), [(0, "refused"), (1, "stale")])
def test_an_address_that_refuses_as_a_group_is_made_is_an_error_and_no_wait(attempt: int, key: str) -> None:
    message = "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]"
    made = job(3, 0).initialises(0).initialises(1).passes(0.5)
    for rank in (0, 1):
        made.wait_raises(rank, message).raises(rank, "RuntimeError", message)
    for one in made.ranks.values():
        one.detail = one.detail.with_(attempt=attempt)
    made.state.attempt = attempt
    found = made.passes(2).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("exit.error", (0, 1), key)
    assert all(one.kind != "hang.store_wait" for one in made.find())


@pytest.mark.parametrize(("busy", "kinds"), [(True, []), (False, ["exit.early"])])
def test_who_receives_from_any_rank_does_not_wait_for_those_that_left_while_one_goes_on(
    busy: bool, kinds: list[str]
) -> None:
    learner = job(3)
    learner.waits(0, "RECV", seq=0, peer=-1)
    if not busy:
        learner.waits(2, "RECV", seq=0, peer=0)
    learner.leaves(1).passes(3)
    assert [one.kind for one in learner.find() if one.kind.startswith("exit")] == kinds


def test_where_a_killed_rank_was_is_no_operation_that_it_had_long_left() -> None:
    made = job(2)
    made.ranks[1].detail = made.ranks[1].detail.with_(
        history=(Operation("INIT", site=at("init", line=5), entered_s=made.now_s - 60, returned_s=made.now_s - 59),)
    )
    made.waits(0, seq=64)
    made.passes(9).dies(1, signal="SIGKILL")
    found = made.passes(1).finds()
    assert (found.kind, found.locations, "init" in found.summary) == ("exit.killed", (), False)
    made.ranks[1].detail = made.ranks[1].detail.with_(backward_site=at("train", line=30))
    found = made.passes(1).finds()
    assert found.locations[0].frame.line == 30
    assert "(last seen in train (" in found.summary


@pytest.mark.parametrize(("after_s", "shown"), [(0.1, "average"), (-9.0, "train")])
def test_a_call_in_its_last_step_is_as_new_as_its_last_backward_pass(after_s: float, shown: str) -> None:
    """Of a rank that has left the loop to do something else for long, as to write a last checkpoint."""
    made = job(2).train(0, 1).passes(10)
    called_s = made.now_s + after_s
    called = Operation("ALLREDUCE", seq=20, site=at("average", line=42), entered_s=called_s, returned_s=called_s + 0.1)
    made.rest(0, 1).waits(0, seq=21).passes(6)
    made.ranks[1].detail = made.ranks[1].detail.with_(history=(called,), backward_site=at("train", line=78))
    found = made.leaves(1).passes(3).finds()
    assert (found.kind, found.ranks, found.locations[0].frame.function) == ("exit.early", (1,), shown)


@pytest.mark.parametrize(("after_s", "shown"), [(0.2, "write_checkpoint"), (-3.0, "train")])
def test_a_checkpoint_after_its_last_step_is_where_it_was_last_seen(after_s: float, shown: str) -> None:
    made = job(2).train(0, 1).passes(10)
    saving_s = made.now_s + after_s
    made.rest(0, 1).waits(0, seq=21).passes(6)
    made.ranks[1].detail = made.ranks[1].detail.with_(
        history=(), backward_site=at("train", line=78), save_site=at("write_checkpoint", line=42), saving_s=saving_s
    )
    found = made.leaves(1).passes(3).finds()
    assert (found.kind, found.locations[0].frame.function) == ("exit.early", shown)


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("OSError", "[Errno 24] Too many open files: '/data/a.bin'"),
        (
            "RuntimeError",
            "unable to open shared memory object </torch_1_2>: Too many open files (24)",
        ),
        ("RuntimeError", "received 0 items of ancdata"),
    ],
)
def test_a_rank_that_can_open_no_more_files_is_told_what_to_look_for(type_: str, message: str) -> None:
    made = job(3).raises(1, type_, message).waits(0, seq=5).waits(2, seq=5)
    signals(made.state, 1, "memory/fds", [10, 20], [900, 1019])
    signals(made.state, 1, "memory/fd_limit", [10, 20], [1024, 1024])
    found = made.finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("exit.error", (1,), "descriptors")
    assert "its limit of 1024 open files (RLIMIT_NOFILE)" in found.causes[0].text
    assert found.causes[0].text.endswith("it held 1019 when it was last looked at")
    assert entry("exit.error").fix("descriptors").action
