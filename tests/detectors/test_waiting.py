"""The store, group creation, and operations that all have entered."""

import pytest
from tests.detectors.states import Job, at, critical, job

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.state.model import Detail

# --- a key of the store


def test_a_key_that_no_one_is_left_to_set_is_told_at_once() -> None:
    found = job(2).wants_key(0, "plan/3").waits(1, seq=8).passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.store_wait", (0,), (1,))
    assert (found.severity, found.names) == (Severity.CRITICAL, ("plan/3",))
    assert "plan/3" in found.summary


@pytest.mark.parametrize(("by", "at_once"), [("thread", False), ("process", False), ("tracker", True)])
def test_a_key_that_a_thread_or_process_beside_the_ranks_may_set_is_waited_for(by: str, at_once: bool) -> None:
    waiting = job(2, hang_after_s=10).wants_key(0, "plan/3").waits(1, seq=8)
    if by == "thread":
        waiting.beside(1, "uploader", at("upload", line=9))
    else:
        tracker = "python -c from multiprocessing.resource_tracker import main"
        waiting.with_child(1, "python service.py" if by == "process" else tracker, 77)
    found = waiting.passes(5).finds()
    assert (found.kind, found.severity) == ("hang.store_wait", Severity.CRITICAL if at_once else Severity.WARNING)
    assert ("may still do so" in found.causes[0].text) is not at_once
    assert waiting.passes(6).finds().severity == Severity.CRITICAL


def test_what_runs_beside_ranks_is_known_once_they_were_looked_at() -> None:
    unseen = job(2, hang_after_s=10).wants_key(0, "plan/3").waits(1, seq=8)
    for rank in (0, 1):
        unseen._detail(rank, stacks=())
    assert unseen.passes(2).find() == ()
    assert unseen.passes(3).finds().severity == Severity.WARNING
    assert unseen.looked_at().finds().severity == Severity.CRITICAL


def test_ranks_that_want_the_same_key_are_one_finding() -> None:
    found = job(3).wants_key(0, "go").wants_key(1, "go").wants_key(2, "go").passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.store_wait", (0, 1, 2))


def test_ranks_that_want_different_keys_are_two_findings() -> None:
    assert job(2).wants_key(0, "a").wants_key(1, "b").passes(2).kinds() == {
        ("hang.store_wait", (0,), "critical"), ("hang.store_wait", (1,), "critical"),
    }  # fmt: skip


def test_ranks_that_want_keys_alike_at_one_line_are_one_finding() -> None:
    made = job(3).waits(0, seq=8)
    for rank in (1, 2):
        made.wants_key(rank, f"go/{rank}", site=at("start", line=7))
    found = made.passes(2).finds()
    assert (found.kind, found.ranks, found.names) == ("hang.store_wait", (1, 2), ("go/1", "go/2"))
    assert found.causes[0].key == "key"


@pytest.mark.parametrize("keys", [("done/10000", "done/10001"), ("added/1", "added/2"), ("part-1/1", "part-2/1")])
def test_keys_that_differ_by_a_number_are_not_said_to_be_spelled_apart(keys: tuple[str, str]) -> None:
    made = job(3).waits(0, seq=8)
    for rank, key in zip((1, 2), keys, strict=True):
        made.wants_key(rank, key, site=at("get", line=8))
    assert {one.causes[0].key for one in made.passes(2).find() if one.kind == "hang.store_wait"} == {"key"}


def test_a_key_that_each_rank_spells_in_its_own_way_is_told_so() -> None:
    made = job(3).waits(0, seq=8).issued(0, "STORE_SET", 0, group="", detail="packed/-7a1c9f31", site=at("get", line=6))
    for rank, token in ((1, "81c09c15"), (2, "49217f13")):
        made.wants_key(rank, f"packed/{token}", site=at("get", line=8))
    found = made.passes(2).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("hang.store_wait", (1, 2), "apart")
    assert found.causes[0].evidence[0].what == "set 'packed/-7a1c9f31' in get (train.py:6)"
    assert "store key 'packed/81c09c15, packed/49217f13'" in found.summary


def test_a_key_that_someone_may_still_set_is_no_catastrophe() -> None:
    may = job(2, hang_after_s=10).wants_key(0, "plan/3").outside(1).works(1, "cpu").passes(3.5)
    assert may.find() == ()
    assert may.passes(60).finds().severity == Severity.WARNING


def test_a_key_is_not_given_up_while_others_are_inside_an_operation_that_may_end() -> None:
    """Ranks 1 and 2 are both in a long operation of their own, after which one of them sets the key."""
    may = job(3, groups={"a": (1, 2)}).wants_key(0, "plan/3").waits(1, seq=8, group="a").waits(2, seq=8, group="a")
    assert critical(may.works(1, "cpu", "io").works(2, "cpu", "io").passes(30).find()) == []


def test_who_set_keys_like_it_before_is_named() -> None:
    stuck = job(2).issued(1, "STORE_SET", 0, group="", detail="plan/2").wants_key(0, "plan/3").waits(1, seq=8)
    assert "rank 1 set keys like it" in stuck.passes(2).finds().summary


def published(rounds: int, but: tuple[int, int]) -> Job:
    """Each of three ranks sets `ROUND/RANK` in each round and then waits for the others' keys; one set is left out."""
    made = job(3)
    for number in range(1, rounds + 1):
        for rank in range(3):
            if (number, rank) != but:
                made.issued(rank, "STORE_SET", 0, group="", detail=f"{number}/{rank}")
    return made


def test_of_keys_that_ranks_set_by_their_own_number_the_one_that_is_missing_is_that_ranks() -> None:
    stuck = published(2, but=(2, 1)).wants_key(0, "2/1, 2/2").wants_key(2, "2/0, 2/1").waits(1, seq=8)
    found = stuck.passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.store_wait", (1,), (0, 2))
    assert found.names == ("2/1",)
    assert "which rank 1 has not set" in found.summary


def test_a_key_that_is_some_ranks_to_set_is_not_told_together_with_one_that_is_nobodys() -> None:
    line = at("collect", line=12)
    stuck = published(2, but=(2, 1)).wants_key(0, "2/1", site=line).wants_key(2, "5/9", site=line).waits(1, seq=8)
    found = [one for one in stuck.passes(2).find() if one.kind == "hang.store_wait"]
    assert sorted((one.ranks, one.names) for one in found) == [((1,), ("2/1",)), ((2,), ("5/9",))]


def test_whose_a_missing_key_is_stays_open_where_one_rank_alone_set_such_keys() -> None:
    stuck = job(3).issued(1, "STORE_SET", 0, group="", detail="1/1").wants_key(0, "2/1").wants_key(2, "2/1, 2/0")
    found = stuck.waits(1, seq=8).passes(2).finds()
    assert (found.ranks, found.names) == ((0, 2), ("2/1",))


def test_of_two_keys_the_one_that_comes_once_the_other_does_is_not_told() -> None:
    stuck = job(3).wants_key(1, "v116").wants_key(2, "v101").waits(0, "RECV", peer=2)
    for number in range(112, 116):
        stuck.issued(0, "STORE_SET", 0, group="", detail=f"v{number}")
    found = stuck.passes(2).find()
    assert [(f.kind, f.ranks, f.names) for f in found] == [("hang.store_wait", (2,), ("v101",))]
    stale = job(3).wants_key(1, "v116").wants_key(2, "v101").waits(0, "RECV", peer=2)
    stale.issued(0, "STORE_SET", 0, group="", detail="v17")  # all that is known so far
    assert [(f.ranks, f.names) for f in stale.passes(2).find()] == [((2,), ("v101",))]
    both = job(3).wants_key(1, "v116").wants_key(2, "w7").waits(0, "RECV", peer=2)  # a series of nobody's
    assert len(both.passes(2).find()) == 2
    busy = job(3).wants_key(1, "v116").wants_key(2, "w7").outside(0)  # who sets them goes on
    busy.issued(0, "STORE_SET", 0, group="", detail="v115")
    assert {f.names for f in busy.passes(40).find() if f.kind == "hang.store_wait"} == {("v116",), ("w7",)}


def test_a_key_that_was_not_there_and_was_given_up_is_no_wait() -> None:
    """`store.wait` with a short timeout, caught: a common way to ask whether a key is there."""
    asks = job(2).wants_key(0, "stop").passes(0.5).wait_raises(0, "wait timeout after 100ms", ends=False)
    asks.outside(0, "forward").works(0, "cpu").outside(1).works(1, "cpu").passes(20)
    assert critical(asks.find()) == []


# --- the workers of a store of the script's own


def test_a_store_waits_for_a_rank_that_has_gone_on() -> None:
    made = job(3).makes_store(0, workers=3).makes_store(2, workers=3).waits(1, seq=120).passes(3)
    found = made.finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.store_wait", (1,), (0, 2))
    assert found.severity == Severity.CRITICAL
    assert "ALLREDUCE" in found.summary
    assert found.locations[0].rank == 1


def test_only_the_server_waits_and_a_worker_that_came_and_went_on_is_no_culprit() -> None:
    made = job(3).makes_store(0, workers=3).issued(2, "STORE_JOIN", 0, "", detail="node-0:4000", numel=3)
    found = made.waits(1, seq=120).waits(2, seq=120).passes(3).finds()
    assert (found.ranks, found.waiting_ranks) == ((1,), (0, 2))


def test_a_worker_that_has_done_much_since_it_came_is_no_culprit_either() -> None:
    made = job(3).makes_store(0, workers=3).waits(1, seq=120).waits(2, seq=120)
    made.state.signals.put_fact(2, "store/joined", 100, "node-9:7000,node-0:4000")
    found = made.passes(3).finds()
    assert (found.ranks, found.waiting_ranks) == ((1,), (0, 2))


def test_of_a_store_for_a_part_of_the_ranks_it_is_not_known_who_is_missing() -> None:
    found = job(4).makes_store(0, workers=2).waits(1, seq=120).waits(2, seq=120).waits(3, seq=120).passes(3).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.store_wait", (0,), (1, 2, 3))
    assert "ranks should have is not known" in found.causes[0].text


def test_a_worker_that_is_still_on_its_way_is_no_more_than_late() -> None:
    made = job(3, hang_after_s=60).makes_store(0, workers=3).makes_store(2, workers=3).outside(1).works(1, "cpu")
    assert made.passes(20).kinds() <= {("hang.store_wait", (1,), "warning")}


# --- creation of groups, and init


def test_a_rank_that_left_out_a_groups_creation_is_named_before_its_own_wait() -> None:
    found = job(3).creates_group(0, 1).creates_group(1, 1).waits(2, seq=4).passes(6).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.store_wait", (2,), (0, 1))
    assert found.severity == Severity.CRITICAL


def test_members_only_creation_followed_by_another_is_a_circle_told_as_a_creation() -> None:
    found = job(2).creates_group(0, 2).creates_group(1, 1).passes(6).finds()
    assert (found.kind, found.ranks) == ("hang.store_wait", (1,))


def creating(*ranks_made: str) -> Job:
    """Each rank is inside its first new_group, for these members."""
    made = job(len(ranks_made))
    for rank, members in enumerate(ranks_made):
        made.creates_group(rank, 1, detail=members if "ranks" in members else f"ranks {members}")
    return made


def test_a_rank_that_makes_its_groups_in_another_order_is_named() -> None:
    made = creating("0,1,2", "1,2,3", "0,1,2")
    found = made.passes(6).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.store_wait", (1,), (0, 2))
    assert found.severity == Severity.CRITICAL
    assert "ranks 1,2,3" in found.summary


def test_who_is_no_member_and_has_gone_on_to_the_next_group_votes_on_the_order_too() -> None:
    made = job(4)
    made.issued(3, "NEW_GROUP", 0, detail="ranks 0,1,2", returned_s=made.now_s).passes(1)
    for rank, members in enumerate(("0,1,2", "1,2,3", "0,1,2")):
        made.creates_group(rank, 1, detail=f"ranks {members}")
    found = made.creates_group(3, 2, detail="ranks 1,2,3").passes(8).finds()
    assert (found.kind, found.ranks) == ("hang.store_wait", (1,))


def test_two_ranks_that_make_different_groups_are_a_tie() -> None:
    found = creating("0,1", "1").passes(6).finds()
    assert (found.kind, found.ranks) == ("hang.store_wait", (0, 1))
    assert "majority" in found.summary


def test_groups_that_their_members_make_alone_have_no_order_to_break() -> None:
    found = creating("0,1", "own ranks 1,2", "own ranks 1,2").passes(6).find()
    assert all("makes the group" not in f.summary for f in found)


def test_a_rank_that_is_late_for_a_groups_creation_is_a_warning() -> None:
    late = job(3, hang_after_s=10).creates_group(0, 1).creates_group(1, 1).outside(2).works(2, "cpu", "frames")
    assert late.passes(3.5).find() == ()
    assert late.passes(56).kinds() == {("hang.store_wait", (2,), "warning")}


def test_a_rank_stuck_before_a_groups_creation_is_critical_and_one_finding() -> None:
    stuck = job(3, hang_after_s=10).creates_group(0, 1).creates_group(1, 1).outside(2).passes(11)
    assert stuck.kinds() == {("hang.store_wait", (2,), "critical")}


def test_a_rank_stuck_long_before_the_others_wait_for_its_joining_is_still_one_finding() -> None:
    stuck = job(3, hang_after_s=10).outside(2).outside(0).outside(1).works(0, "cpu").works(1, "cpu").passes(6)
    stuck.rest(0, 1).creates_group(0, 1).creates_group(1, 1).passes(6)
    found = stuck.finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.store_wait", (2,), Severity.CRITICAL)


def test_a_rank_that_a_person_holds_before_a_groups_creation_is_never_called_hung() -> None:
    held = job(3, hang_after_s=10).creates_group(0, 1).creates_group(1, 1).outside(2).held_by(2, "pdb").passes(100)
    assert held.kinds() == {("hang.rank_stopped", (2,), "info")}


def test_a_rank_stopped_before_a_groups_creation_is_called_stopped() -> None:
    held = job(3, hang_after_s=10).creates_group(0, 1).creates_group(1, 1).outside(2).stopped(2).passes(20)
    assert held.kinds() == {("hang.rank_stopped", (2,), "critical")}


def test_a_rank_that_never_reported_is_not_blamed_for_that() -> None:
    unheard = job(3, hang_after_s=10, warm=False).silent(2).initialises(0).initialises(1)
    unheard.state.world_size = 3
    found = unheard.passes(120).find()
    assert critical(found) == []
    assert {f.ranks for f in found} == {(2,)}
    assert "nothing is heard" in found[0].summary


@pytest.mark.parametrize(("seconds", "severity"), [(29.5, Severity.INFO), (30.5, Severity.WARNING)])
def test_a_rank_that_may_still_be_importing_is_no_alarm_for_as_long_as_that_takes(
    seconds: float, severity: Severity
) -> None:
    """As Lightning does it: rank 0 starts the others when it is ready to join itself."""
    start = job(2, hang_after_s=10, warm=False).silent(1).initialises(0)
    start.state.world_size = 2
    found = start.passes(seconds).finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.store_wait", (1,), severity)


def test_a_candidate_that_sleeps_before_init_is_an_alarm_before_patience_is_over() -> None:
    start = job(3, hang_after_s=60, warm=False).initialises(0).initialises(1)
    start.outside(2, "download", line=5, syscall="clock_nanosleep")
    start.ranks[2].detail = start.ranks[2].detail.with_(is_rank=False, groups=())
    assert start.passes(12).finds().severity == Severity.WARNING


@pytest.mark.parametrize(("syscall", "severity"), [("clock_nanosleep", Severity.CRITICAL), ("futex", Severity.WARNING)])
def test_a_candidate_before_init_is_named_with_its_place_and_stuck_only_where_it_sleeps(
    syscall: str, severity: Severity
) -> None:
    """At a futex or in a read, its threads, its children or a server may work for it: that is not known of it."""
    start = job(3, hang_after_s=10, warm=False).initialises(0).initialises(1)
    start.outside(2, "download", line=5, syscall=syscall)
    start.ranks[2].detail = start.ranks[2].detail.with_(is_rank=False, groups=())
    found = start.passes(12).finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.store_wait", (2,), severity)
    assert "download (train.py:5)" in found.summary


@pytest.mark.parametrize(
    ("still_for_s", "severity"), [(10.5, Severity.CRITICAL), (9.0, Severity.WARNING), (None, Severity.WARNING)]
)
def test_a_candidate_that_waits_in_a_call_is_stuck_once_it_has_long_shown_no_sign_of_life(
    still_for_s: float | None, severity: Severity
) -> None:
    start = job(3, hang_after_s=10, warm=False).initialises(0).initialises(1)
    start.outside(2, "check_out", line=5, syscall="recvfrom")
    since_s = 0.0 if still_for_s is None else start.now_s + 12 - still_for_s
    start.ranks[2].detail = start.ranks[2].detail.with_(is_rank=False, groups=(), still_since_s=since_s)
    found = start.passes(12).finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.store_wait", (2,), severity)


@pytest.mark.parametrize(
    ("asked", "heard", "key"),
    [
        ("4 2", False, "not_started"),
        ("4 3", False, "not_joined"),
        ("2 4", False, "not_joined"),
        ("", False, "not_joined"),
        ("4 2", True, "not_joined"),
    ],
)
def test_ranks_that_the_launcher_never_started_are_told_at_once(asked: str, heard: bool, key: str) -> None:
    start = job(4 if heard else 2, hang_after_s=60, warm=False).initialises(0).initialises(1)
    for rank in (2, 3) if heard else ():
        start._detail(rank, groups=())
    start.state.world_size = 4
    for rank in (0, 1) if asked else ():
        start.state.signals.put_fact(rank, "init/world", 0, asked)
    found = start.passes(7).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("hang.store_wait", (2, 3), key)
    assert (found.severity == Severity.CRITICAL) is (key == "not_started")


def test_ranks_that_join_under_the_number_of_another_are_at_fault() -> None:
    start = job(4, hang_after_s=60, warm=False)
    for rank in range(4):
        start.initialises(rank, site=at("main", line=7))
    start.state.signals.put_fact(2, "init/rank", 0, "0 2")
    start.state.signals.put_fact(3, "init/rank", 0, "1 3")
    found = start.passes(7).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.store_wait", (2, 3), (0, 1))
    assert (found.severity, found.causes[0].key) == (Severity.CRITICAL, "same_rank")
    assert "rank 2 joins as rank 0, rank 3 joins as rank 1, " in found.summary
    assert found.locations[0].frame.line == 7


def test_ranks_that_join_under_other_numbers_of_which_each_is_there_once_are_not() -> None:
    start = job(2, hang_after_s=60, warm=False).initialises(0).initialises(1)
    for rank in (0, 1):
        start.state.signals.put_fact(rank, "init/rank", 0, f"{1 - rank} {rank}")
    assert "same_rank" not in [cause.key for found in start.passes(70).find() for cause in found.causes]


def test_a_rank_that_failed_in_init_has_come_to_it() -> None:
    """Its connection was refused; the others still stand in it when the launcher ends the job."""
    start = job(3, hang_after_s=10, warm=False).initialises(0).initialises(1).initialises(2)
    start.wait_raises(2, "Gloo connectFullMesh failed with Connection refused")
    assert all(f.kind != "hang.store_wait" or 2 not in f.ranks for f in start.passes(12).find())


def test_an_init_that_all_have_entered_is_told_only_with_patience() -> None:
    start = job(2, hang_after_s=10, warm=False).initialises(0).initialises(1).passes(9)
    assert critical(start.find()) == []
    assert ("hang.store_wait", (0, 1), "critical") in start.passes(2).kinds()


def test_an_init_that_all_have_entered_and_that_does_not_end_is_not_laid_to_who_has_not_joined() -> None:
    start = job(2, hang_after_s=10, warm=False).initialises(0).initialises(1).passes(11)
    found = start.finds()
    assert (found.kind, found.causes[0].key) == ("hang.store_wait", "unconnected")
    assert "some have not" not in found.causes[0].text
    start.state.attempt = 1
    for one in start.ranks.values():
        one.detail = one.detail.with_(attempt=1)
    assert start.finds().causes[0].key == "stale"


# --- all have entered it


def in_one_operation(world: int = 3, hang_after_s: float = 10) -> Job:
    all_in = job(world, hang_after_s)
    for rank in range(world):
        all_in.waits(rank, seq=40)
    return all_in


def test_an_operation_that_all_have_entered_and_that_does_not_end_is_all_arrived() -> None:
    found = in_one_operation().passes(10).finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.all_arrived", (0, 1, 2), Severity.CRITICAL)
    assert (found.op_name, found.op_seq) == ("ALLREDUCE", 40)


def test_just_below_patience_all_arrived_is_a_warning() -> None:
    assert in_one_operation().passes(9.5).finds().severity == Severity.WARNING


@pytest.mark.parametrize(("seconds", "kinds"), [(0.2, set()), (30, {"hang.all_arrived"})])
def test_an_operation_that_fails_at_once_did_not_hang(seconds: float, kinds: set[str]) -> None:
    failing = in_one_operation(hang_after_s=10).passes(seconds)
    for rank in range(3):
        failing.wait_raises(rank)
    assert {kind for kind, *_ in failing.passes(3).kinds() if kind.startswith("hang.all")} == kinds


def test_a_long_operation_that_makes_progress_is_quiet() -> None:
    assert in_one_operation().works(1, "other_cpu").passes(60).find() == ()


def test_an_operation_in_backward_that_all_have_entered_is_all_arrived() -> None:
    stuck = job(2, hang_after_s=10).waits_in_backward(0, seq=40).waits_in_backward(1, seq=40).passes(12)
    assert stuck.kinds() == {("hang.all_arrived", (0, 1), "critical")}


def test_two_pairs_that_meet_and_do_not_finish_are_two_findings() -> None:
    pairs = job(4, hang_after_s=10).sends(0, peer=1).receives(1, peer=0).sends(2, peer=3).receives(3, peer=2)
    assert pairs.passes(11).kinds() == {
        ("hang.all_arrived", (0, 1), "critical"), ("hang.all_arrived", (2, 3), "critical"),
    }  # fmt: skip


def test_ranks_that_joined_and_are_at_equal_places_are_quiet() -> None:
    """As under Join: a rank without data shadows the others' operations."""
    shadow = job(3)
    for seq in range(1, 6):
        for rank in range(3):
            shadow.goes_on(rank).waits(rank, seq=seq)
        shadow.works(0, "cpu").works(1, "cpu").passes(1)
    assert shadow.find() == ()


@pytest.mark.parametrize("seconds", [0.5, 3, 8])
def test_a_healthy_job_is_quiet_whenever_it_is_looked_at(seconds: float) -> None:
    assert job(3).train(0, 1, 2).passes(seconds).find() == ()


def test_a_state_without_ranks_is_quiet() -> None:
    nothing = job(2, warm=False).silent(0, 1)
    assert nothing.passes(100).find() == ()
    nothing.state.apply([], [Detail(0, is_rank=False)], nothing.now_s)
    assert nothing.find() == ()


# --- what was seen of a rank is older than what it does now


def test_a_wait_that_the_newest_numbers_no_longer_show_is_over() -> None:
    """Details come seldom while all is well: their operations say nothing once the rank's numbers have moved on."""
    stale = job(2).waits(0, seq=5).report().stale(0, 1).goes_on(0).train(0, 1).passes(9)
    assert stale.find() == ()


def test_a_wait_that_began_after_the_detail_was_read_is_another_one() -> None:
    stale = job(2).waits(0, seq=5).report().stale(0, 1).train(1)
    for _ in range(18):
        stale.ranks[0].facts.wait_s = stale.now_s + 0.2
        stale.passes(0.5)
    assert stale.find() == ()


def test_a_wait_in_backward_is_over_once_the_rank_makes_steps_again() -> None:
    stale = job(2).waits_in_backward(0, seq=5).waits_in_backward(1, seq=6).passes(3)
    stale.stale(0, 1).train(0, 1)
    stale.ranks[0].facts.operations += 1
    stale.ranks[1].facts.operations += 1
    assert stale.passes(9).find() == ()
