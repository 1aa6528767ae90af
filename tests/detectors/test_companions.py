"""What of a blocked rank's own it waits for: another thread of it, or a child."""

import pytest
from tests.detectors.states import TORCH, Job, at, job

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.state.model import Frame


def blocked(syscall: str) -> Job:
    return job(2, 10).waits(0, seq=120).outside(1, "report", line=43, syscall=syscall)


def told(found: Finding) -> list[str]:
    return [one.what for one in found.causes[0].evidence if one.what.startswith(("its thread", "its child"))]


def test_the_one_thread_beside_a_rank_that_waits_for_a_lock_is_named_with_its_place() -> None:
    found = blocked("futex").beside(1, "sampler", at("write", line=29)).passes(11).finds()
    assert "waits for a lock while its thread 'sampler' is in write (train.py:29), in report" in found.summary
    assert told(found) == ["its thread 'sampler' is in write (train.py:29)"]
    assert found.causes[0].key == "companion"  # and not the advice to look for a thread
    assert found.locations[0].frame.line == 43  # the rank's own stays first


def test_of_two_threads_neither_is_said_to_be_the_one() -> None:
    two = blocked("futex").beside(1, "sampler", at("write", line=29)).beside(1, "writer", at("put", line=9))
    found = two.passes(11).finds()
    assert "while its thread" not in found.summary
    assert len(told(found)) == 2


def test_a_librarys_thread_is_not_told_of() -> None:
    library = Frame("run", f"{TORCH}/utils/data/_utils/pin_memory.py", 30, user=False)
    assert told(blocked("futex").beside(1, "pin", library).passes(11).finds()) == []


def test_a_thread_is_not_told_of_where_no_lock_is_waited_for() -> None:
    assert told(blocked("read").beside(1, "sampler", at("write", line=29)).passes(11).finds()) == []


@pytest.mark.parametrize("syscall", ["wait4", "poll"])
def test_the_child_that_a_rank_waits_for_is_named(syscall: str) -> None:
    found = blocked(syscall).with_child(1, "rsync -a /out store:/out", 77).passes(11).finds()
    assert told(found) == ["its child 77 (rsync -a /out store:/out) has not ended"]
    assert ("for its child 77 (rsync -a /out store:/out), in report" in found.summary) == (syscall == "wait4")
    assert (found.causes[0].key == "child") == (syscall == "wait4")


def test_a_shell_and_what_it_has_started_are_both_named() -> None:
    both = blocked("wait4").with_child(1, "sh -c sleep 300", 77).with_child(1, "sleep 300", 78)
    assert "for its children 77 (sh -c sleep 300) and 78 (sleep 300), in report" in both.passes(11).finds().summary


def test_a_child_that_has_ended_and_one_that_is_not_waited_for_are_no_reason() -> None:
    ended = blocked("wait4").with_child(1, "rsync", 77, exit="exit code 0").with_child(1, "gzip", 78, state="Z")
    assert told(ended.passes(11).finds()) == []
    assert told(blocked("flock").with_child(1, "rsync", 77).passes(11).finds()) == []


def test_a_rank_whose_stack_shows_no_forward_pass_is_not_said_to_be_in_one() -> None:
    elsewhere = blocked("read").passes(11).finds().causes[0].evidence[0].what
    inside = job(2, 10).waits(0, seq=120).outside(1, "forward", line=43).passes(11).finds().causes[0].evidence[0].what
    assert "in no forward or backward pass" in elsewhere
    assert "phase forward" in inside
