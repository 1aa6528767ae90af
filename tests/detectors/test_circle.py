"""Ranks that wait for each other in a circle, and sends and receives that find no partner."""

import pytest
from tests.detectors.states import Job, at, critical, job

from diagd.daemon.detectors import history
from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.state.model import Group


def test_a_send_that_a_thread_of_a_rank_may_make_is_waited_for() -> None:
    waiting = job(2, hang_after_s=10).looked_at().waits(0, "BARRIER", seq=61).receives(1, 0)
    assert waiting.passes(3).finds().severity == Severity.CRITICAL
    waiting.beside(0, "sender", at("push", line=9))
    assert waiting.finds().severity == Severity.WARNING
    found = waiting.passes(9).finds()
    assert (found.kind, found.severity) == ("hang.p2p_unmatched", Severity.CRITICAL)
    assert "RECV" in found.waits + found.summary


def test_ranks_that_met_in_different_operations_of_one_group_are_past_all_help() -> None:
    apart = job(2).looked_at().waits(0, "BARRIER", seq=61).waits(1, "ALLGATHER", seq=61)
    apart.beside(0, "sender", at("push", line=9))
    assert apart.passes(3).finds().severity == Severity.CRITICAL


def two_groups_in_opposite_order() -> Job:
    return job(2, groups={"a": (0, 1), "b": (0, 1)}).waits(0, seq=4, group="a").waits(1, seq=9, group="b")


def test_two_groups_entered_in_opposite_order_are_a_circle_and_a_tie() -> None:
    found = two_groups_in_opposite_order().passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.group_cycle", (0, 1), ())
    assert (found.severity, found.sure) == (Severity.CRITICAL, True)
    assert set(found.names) == {"a", "b"}
    assert "circle" in found.summary


def test_a_circle_is_proven_only_after_two_looks() -> None:
    young = two_groups_in_opposite_order().passes(1)
    assert young.find() == ()
    assert young.passes(0.5).finds().kind == "hang.group_cycle"


def test_three_groups_can_be_a_circle_of_three() -> None:
    ring = job(3, groups={"a": (0, 1), "b": (1, 2), "c": (2, 0)})
    ring.waits(0, seq=1, group="a").waits(1, seq=1, group="b").waits(2, seq=1, group="c")
    found = ring.passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.group_cycle", (0, 1, 2))


def test_the_one_rank_that_is_out_of_order_is_the_culprit() -> None:
    crossed = job(4, groups={"a": (0, 1, 2, 3), "b": (0, 1, 2, 3)})
    for rank in (0, 1, 2):
        crossed.waits(rank, seq=4, group="a")
    found = crossed.waits(3, seq=9, group="b", site=at("sync", line=77)).passes(2).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.group_cycle", (3,), (0, 1, 2))
    assert (found.locations[0].rank, found.locations[0].frame.line) == (3, 77)


def test_ranks_at_one_line_in_groups_that_are_rows_of_a_mesh_stand_alike() -> None:
    rows = job(4, groups={"row 0": (0, 2), "row 1": (1, 3), "all": (0, 1, 2, 3)})
    for rank in range(4):
        if rank < 2:
            rows.waits(rank, seq=9, group=f"row {rank}", site=at("fit", line=82))
        else:
            rows.waits(rank, seq=3, group="all", site=at("fit", line=87))
    found = rows.passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.group_cycle", (0, 1, 2, 3))  # two by two: a tie


def test_groups_that_were_made_in_another_order_on_some_ranks_are_told_by_their_numbers() -> None:
    """Each rank has made the pairs that it is a member of alone: 0 and 3 are in the third group of one, the first of
    the other."""
    pairs = job(4)
    made = {0: ((0, 1), (0, 2), (0, 3)), 1: ((0, 1), (1, 2), (1, 3)), 2: ((0, 2), (1, 2), (2, 3)), 3: ((0, 3), (1, 3))}
    for rank, groups in made.items():
        whole = pairs.ranks[rank].detail.groups
        mine = tuple(Group(str(number), members) for number, members in enumerate(groups, 1))
        pairs.ranks[rank].detail = pairs.ranks[rank].detail.with_(groups=(*whole, *mine))
    found = pairs.waits(0, "ALLGATHER", seq=1, group="3").waits(3, "ALLGATHER", seq=1, group="1").passes(2).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("hang.group_cycle", (2, 3), "made")
    assert "group 1 is of ranks 0,1 on ranks 0,1; of ranks 0,2 on rank 2; of ranks 0,3 on rank 3" in found.summary


def test_who_waits_for_the_circle_is_a_victim() -> None:
    behind = job(4, groups={"a": (0, 1), "b": (0, 1), "c": (1, 2), "d": (2, 3)})
    behind.waits(0, seq=1, group="a").waits(1, seq=1, group="b").waits(2, seq=1, group="c").waits(3, seq=1, group="d")
    found = behind.passes(2).finds()
    assert (found.ranks, found.waiting_ranks) == ((0, 1), (2, 3))


def test_a_circle_over_two_groups_may_pass_through_send_and_recv() -> None:
    mixed = job(2, groups={"a": (0, 1)}).receives(0, peer=1).waits(1, seq=3, group="a").passes(2).finds()
    assert (mixed.kind, mixed.ranks) == ("hang.group_cycle", (0, 1))


@pytest.mark.parametrize("name", ["RECV", "SEND"])
def test_a_recv_against_a_barrier_of_its_group_has_no_partner(name: str) -> None:
    met = job(3).waits(0, name, peer=1).waits(1, "BARRIER", seq=3).waits(2, "BARRIER", seq=3).passes(2).finds()
    assert (met.kind, met.ranks, met.waiting_ranks, met.causes[0].key) == ("hang.p2p_unmatched", (1,), (0, 2), "path")
    assert met.summary.startswith("rank 1 is not in the send or recv that others wait for")


def test_of_a_chain_of_receives_it_is_who_went_to_the_collective() -> None:
    chain = job(3).receives(0, peer=1).receives(1, peer=2).waits(2, seq=3).passes(2).finds()
    assert (chain.kind, chain.ranks, chain.waiting_ranks) == ("hang.p2p_unmatched", (2,), (0, 1))


@pytest.mark.parametrize("both", ["RECV", "SEND"])
def test_two_ranks_that_both_receive_or_both_send_are_unmatched(both: str) -> None:
    found = job(2).waits(0, both, peer=1).waits(1, both, peer=0).passes(2).finds()
    assert (found.kind, found.ranks, found.severity) == ("hang.p2p_unmatched", (0, 1), Severity.CRITICAL)


def test_a_ring_of_receives_is_unmatched() -> None:
    found = job(3).receives(0, peer=1).receives(1, peer=2).receives(2, peer=0).passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", (0, 1, 2))


def test_send_and_recv_with_different_tags_do_not_meet() -> None:
    found = job(2).sends(0, peer=1, tag=1).receives(1, peer=0, tag=2).passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", (0, 1))


def test_a_send_that_meets_its_recv_is_no_circle() -> None:
    assert critical(job(2).sends(0, peer=1, tag=1).receives(1, peer=0, tag=1).passes(30).find()) == []


def pipelined(open_sends: int, other_host: bool = False) -> Job:
    """Rank 0 waits in the last of its sends, of which rank 1 has an open receive for one; both wait in a send."""
    made = job(2).passes(1)
    if other_host:
        made.ranks[1].detail = made.ranks[1].detail.with_(host="elsewhere")
    made.issued(0, "SEND", 0, peer=1, returned_s=made.now_s).issued(1, "RECV", 0, peer=0, returned_s=made.now_s)
    made.passes(1).issued(1, "RECV", 0, peer=0).passes(0.2)
    made.ranks[1].detail = made.ranks[1].detail.with_(operations=made.ranks[1].detail.history[-1:])
    for _ in range(open_sends - 1):
        made.issued(0, "SEND", 0, peer=1, returned_s=made.now_s + 0.1).passes(0.5)
    return made.sends(0, peer=1).sends(1, peer=0).passes(3)


def test_a_send_for_which_no_open_receive_is_left_has_no_partner() -> None:
    found = pipelined(2).finds()
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", (0, 1))


def test_a_send_meets_the_open_receive_that_no_send_has_taken() -> None:
    assert "hang.p2p_unmatched" not in {f.kind for f in pipelined(1).find()}


def test_times_of_two_hosts_do_not_tell_which_send_took_a_receive() -> None:
    assert "hang.p2p_unmatched" not in {f.kind for f in pipelined(2, other_host=True).find()}


def test_a_recv_from_any_rank_meets_any_send() -> None:
    assert critical(job(3).receives(0).sends(1, peer=0).outside(2).works(2, "cpu").passes(30).find()) == []


def ring(rounds: int, silent: int | None) -> Job:
    """Each rank sends to its right, then receives from its left; one sends no more after so many rounds."""
    made, line = job(4), at("exchange", line=45)
    for rank in range(4):
        right, left = (rank + 1) % 4, (rank - 1) % 4
        for _ in range(rounds):
            made.did(rank, "SEND", line, peer=right).did(rank, "RECV", line, peer=left)
        for _ in range(3 if rank == silent else 0):
            made.did(rank, "RECV", line, peer=left)
        if rank != silent:
            made.did(rank, "SEND", line, peer=right)
        made.receives(rank, peer=left, site=line)
    return made.passes(2)


@pytest.mark.parametrize(("rounds", "silent", "ranks"), [
    (12, 1, (1,)), (12, None, (0, 1, 2, 3)), (5, 1, (0, 1, 2, 3)),  # too few to know what is usual
])  # fmt: skip
def test_who_goes_on_without_a_send_that_it_has_always_made_is_at_fault(
    rounds: int, silent: int | None, ranks: tuple[int, ...]
) -> None:
    found = ring(rounds, silent).finds()
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", ranks)
    assert ("gone on without a send" in found.summary) == (ranks == (1,))


def test_a_recv_from_any_rank_is_no_circle_while_someone_may_still_send() -> None:
    open_ = job(3).receives(0).receives(1, peer=0).outside(2).works(2, "cpu").passes(30)
    assert critical(open_.find()) == []


def test_a_recv_whose_partner_is_stuck_elsewhere_is_that_ranks_fault() -> None:
    found = job(2, hang_after_s=10).receives(0, peer=1).outside(1).passes(11).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_blocked", (1,), (0,))


def test_a_circle_among_the_others_is_told_while_one_rank_works() -> None:
    part = job(3, groups={"a": (0, 1), "b": (0, 1)}).waits(0, seq=4, group="a").waits(1, seq=9, group="b")
    assert part.outside(2).train(2).passes(5).kinds() == {("hang.group_cycle", (0, 1), "critical")}


def test_a_counter_that_is_one_poll_behind_is_no_circle() -> None:
    lag = two_groups_in_opposite_order().passes(0.5)
    assert lag.entered(1, 4, "a").entered(0, 9, "b").passes(5).find() == () or critical(lag.find()) == []


def test_a_background_thread_that_waits_for_another_makes_no_circle_while_its_rank_computes() -> None:
    """As an asynchronous checkpoint does: its threads meet in a group of their own, and rank 0 writes for long."""
    saving = job(2, groups={"save": (0, 1)}).issued(1, "ALLREDUCE", 49, thread=101)
    saving.waits(1, seq=2, group="save", thread=77)
    saving.outside(1, "forward").works(1, "cpu").waits(0, seq=50).passes(30)
    assert critical(saving.find()) == []


def test_a_rank_that_rests_in_a_join_waits_as_its_thread_does() -> None:
    joined = job(2, groups={"side": (0, 1)}).issued(1, "ALLREDUCE", 49, thread=101)
    joined.waits(1, seq=2, group="side", thread=77)
    joined.outside(1, "join").waits(0, seq=50).passes(10)
    assert ("hang.group_cycle", (0, 1), "critical") in joined.kinds()


def test_a_server_that_waits_for_a_worker_which_did_not_send_is_not_the_culprit_by_a_vote() -> None:
    send, publish, receive = at("work", line=30), at("publish", line=40), at("collect", line=20)
    served = job(4)
    for seq in range(100, 111):
        senders = (1, 2, 3) if seq < 110 else (1, 2)
        for rank in senders:
            served.did(rank, "SEND", send, peer=0).did(0, "RECV", receive)
        served.passes(0.1)
        if seq < 110:
            for rank in range(4):
                served.did(rank, "BROADCAST", publish, seq)
            served.passes(0.1)
    served.receives(0, site=receive)
    for rank in (1, 2, 3):
        served.waits(rank, "BROADCAST", seq=110, root=0, site=publish)
    assert served.passes(3).finds().ranks == (3,)


@pytest.mark.parametrize(("rounds", "turns_to", "ranks"), [
    (12, 3, (2,)), (12, None, (0, 1, 2, 3)), (5, 3, (0, 1, 2, 3)),  # too few to know its partners
])  # fmt: skip
def test_who_turns_to_a_partner_that_it_never_had_is_at_fault(
    rounds: int, turns_to: int | None, ranks: tuple[int, ...]
) -> None:
    made, line = job(4), at("exchange", line=45)
    for rank in range(4):
        right, left = (rank + 1) % 4, (rank - 1) % 4
        for _ in range(rounds):
            made.did(rank, "SEND", line, peer=right).did(rank, "RECV", line, peer=left)
        if rank == 2 and turns_to is not None:
            made.receives(rank, peer=turns_to, site=line)
        else:
            made.sends(rank, peer=right, site=line)
    found = made.passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", ranks)
    assert ("never sent to or received from before" in found.summary) == (ranks == (2,))


def test_a_send_and_its_receive_with_other_tags_are_told_by_their_tags_and_nobody_is_called_out_of_order() -> None:
    line = at("pass_on", line=10)
    made = job(3).receives(0, peer=1, tag=7)
    for rank, name, peer in ((1, "SEND", 2), (2, "RECV", 1)):
        for step in range(12):
            made.did(rank, name, line, peer=peer, tag=step)
    found = made.sends(1, peer=2, tag=13, site=line).receives(2, peer=1, tag=12, site=line).passes(3).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("hang.p2p_unmatched", (1, 2), "tags")
    assert "sends to rank 2 with tag 13, and rank 2 receives from it with tag 12" in found.summary


def test_operations_of_one_group_that_all_had_issued_are_no_circle_once_their_ranks_have_died() -> None:
    started = job(3)
    for rank in range(3):
        started.issued(rank, "ALLREDUCE", 10).issued(rank, "ALLREDUCE", 11)
    started.waits(0, seq=11).waits(1, seq=10).waits(2, seq=11).passes(0.5)
    aborted = started.dies(1, signal="SIGABRT").wait_raises(0).wait_raises(2).passes(1)
    assert "hang.collective_mismatch" not in {found.kind for found in aborted.find()}
    assert aborted.find() == ()  # each fell out of the group's operations: which of them broke it, nothing here says


@pytest.mark.parametrize(("exchanged", "culprits"), [(True, (1,)), (False, (0,))])
def test_who_turns_to_a_rank_that_has_done_its_share_is_at_fault(exchanged: bool, culprits: tuple[int, ...]) -> None:
    pairs, lend = {0: 2, 2: 0, 1: 3, 3: 1}, at("lend", line=9)
    met = job(4).train(*pairs).passes(6)
    for rank, peer in pairs.items():
        last_s = met.ranks[rank].facts.step_s
        steps = range(-6, 1 if exchanged and rank in (0, 2) else 0)
        for step in steps:
            for name in ("SEND", "RECV"):
                met.did(rank, name, lend, peer=peer, entered_s=last_s + 0.5 * step + 0.1)
            if step < 0:
                met.did(rank, "ALLREDUCE", at("step", line=50), seq=50 + step, entered_s=last_s + 0.5 * step + 0.2)
    met.rest(*pairs).passes(0.3)
    met.waits(0, seq=60).waits(2, seq=60).waits(1, "SEND", peer=0, site=lend).waits(3, "SEND", peer=1, site=lend)
    found = next(one for one in met.passes(2).find() if one.kind == "hang.p2p_unmatched")
    assert history.has_done_its_share(scene_of(met.state), 0, "RECV") == exchanged
    assert found.ranks == culprits
    assert ("has done its sends and receives of this step with others" in found.summary) == exchanged


@pytest.mark.parametrize(("of_usual", "culprits"), [(2, (0, 1)), (1, (1,))])
def test_who_goes_to_a_collective_with_fewer_sends_than_in_the_steps_before_is_at_fault(
    of_usual: int, culprits: tuple[int, ...]
) -> None:
    hop = at("pass_on", line=9)
    met = job(2, groups={"ring": (0, 1)}).train(0, 1).passes(6)
    for rank in (0, 1):
        last_s = met.ranks[rank].facts.step_s
        for step in range(-6, 1):
            for number in range(2 if step < 0 or rank == 0 else of_usual):
                at_s = last_s + 0.5 * step + 0.05 + 0.1 * number
                for name in ("SEND", "RECV"):
                    met.did(rank, name, hop, peer=1 - rank, entered_s=at_s)
            if step < 0:
                met.did(rank, "ALLREDUCE", at("step", line=50), seq=50 + step, entered_s=last_s + 0.5 * step + 0.4)
    met.rest(0, 1).passes(0.3)
    met.waits(1, seq=50).receives(0, peer=1, group="ring", site=hop)
    found = next(one for one in met.passes(2).find() if one.kind == "hang.group_cycle")
    assert found.ranks == culprits
    assert ("with fewer sends or receives than in the steps before" in found.summary) == (culprits == (1,))


@pytest.mark.parametrize(("sent", "culprits"), [(True, (0, 1)), (False, (1,))])
def test_two_sends_face_each_other_and_who_sends_more_than_in_the_steps_before_is_not_at_fault_for_that(
    sent: bool, culprits: tuple[int, ...]
) -> None:
    """One message there and one back in a step, until there are two; or until rank 1 sends before it has received."""
    there, back = at("send", line=9), at("receive", line=14)
    met = job(2).train(0, 1).passes(6)
    for rank in (0, 1):
        last_s = met.ranks[rank].facts.step_s
        order = (("SEND", there), ("RECV", back)) if rank == 0 else (("RECV", back), ("SEND", there))
        for step in range(-6, 0):
            for number, (name, site) in enumerate(order):
                at_s = last_s + 0.5 * step + 0.1 + 0.1 * number
                met.did(rank, name, site, peer=1 - rank, entered_s=at_s)
        if sent:
            met.did(rank, *order[0], peer=1 - rank, entered_s=last_s + 0.1)
    met.rest(0, 1).passes(0.3)
    found = met.sends(0, peer=1, site=there).sends(1, peer=0, site=there).passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", culprits)
    assert ("which of them should have received first is not known" in found.summary) == sent


@pytest.mark.parametrize(("usual", "culprits"), [(2, (1,)), (0, (0,))])
def test_who_sends_to_a_rank_that_it_never_sent_to_is_at_fault_and_not_that_one(
    usual: int, culprits: tuple[int, ...]
) -> None:
    ring, line = job(3), at("ring", line=8)
    for step in range(12):
        for rank, peer in ((0, 1), (1, usual), (2, 0)):
            ring.did(rank, "SEND", line, peer=peer, entered_s=ring.now_s - 12 + step)
            ring.did(rank, "ALLREDUCE", at("ring", line=9), seq=step + 1, entered_s=ring.now_s - 11.5 + step)
    ring.did(0, "SEND", line, peer=1).passes(0.2)
    ring.waits(0, seq=60, site=at("ring", line=9)).waits(1, "SEND", peer=0, site=line).receives(2, peer=1, site=line)
    found = ring.passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", culprits)


def test_a_send_is_judged_once_it_is_known_what_its_rank_did_before() -> None:
    met = job(2).waits(0, seq=60).waits(1, "SEND", peer=0)
    for placed in met.ranks.values():
        placed.facts.operations = 100
    assert met.passes(3).find() == ()
    met.did(0, "SEND", at("ring"), peer=1).did(1, "SEND", at("ring"), peer=0)
    assert met.passes(0.5).finds().kind == "hang.p2p_unmatched"
    silent = job(2).waits(0, seq=60).waits(1, "SEND", peer=0)
    for placed in silent.ranks.values():
        placed.facts.operations = 100
    assert silent.passes(9).finds().kind == "hang.p2p_unmatched"  # it does not come


def test_what_is_issued_from_cpp_is_no_strangers_way() -> None:
    met, lend = job(2), at("lend", line=9)
    for step in range(12):
        for rank in (0, 1):
            met.did(rank, "SEND", lend, peer=1 - rank, entered_s=met.now_s - 12 + step)
            met.did(rank, "RECV", lend, peer=1 - rank, entered_s=met.now_s - 11.9 + step)
    met.waits_in_backward(0, seq=60, site=at("main", line=76)).waits(1, "SEND", peer=0, site=lend).passes(2)
    scene = scene_of(met.state)
    waits = {rank: scene.graph.waits[rank][0] for rank in (0, 1)}
    assert waits[0].op.source == "flight recorder"
    assert history.first_time(scene, waits) == ()


@pytest.mark.parametrize(("rounds", "culprits"), [(12, (0,)), (3, (0, 1))])
def test_who_goes_from_one_groups_operation_to_another_as_no_rank_did_before_is_at_fault(
    rounds: int, culprits: tuple[int, ...]
) -> None:
    """DDP averages over the world, then a script over its own group: one rank leaves that out."""
    met = job(2, groups={"0": (0, 1), "pair": (0, 1)})
    for turn in range(1, rounds + 1):
        met.passes(0.1)
        for rank in (0, 1):
            met.recorded(rank, "ALLREDUCE", turn).passes(0.01).recorded(rank, "ALLREDUCE", turn, "pair").passes(0.01)
    for rank in (0, 1):
        met.recorded(rank, "ALLREDUCE", rounds + 1)
    met.passes(0.1).waits_in_backward(0, rounds + 2).waits(1, seq=rounds + 1, group="pair")
    found = met.passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.group_cycle", culprits)


@pytest.mark.parametrize("along", [(2,), (1, 2, 3)])
def test_who_comes_alone_to_what_no_rank_ever_came_to_is_at_fault(along: tuple[int, ...]) -> None:
    """In a mesh all else comes from C++; one rank calls a barrier of all ranks, in the midst of the steps."""
    pairs = {"even": (0, 2), "odd": (1, 3), "low": (0, 1), "high": (2, 3)}
    met = job(4, groups={"0": (0, 1, 2, 3), **pairs})
    for turn in range(1, 13):
        for name, group in (("ALLGATHER", "even"), ("ALLGATHER", "odd"), ("ALLREDUCE", "low"), ("ALLREDUCE", "high")):
            for rank in pairs[group]:
                met.passes(0.01).recorded(rank, name, turn, group)
    met.passes(0.1)
    for rank in along:
        met.waits(rank, "BARRIER", seq=1, group="0", site=at("main", line=28))
    for rank, group in {1: "low", 3: "high"}.items():
        if rank not in along:
            met.recorded(rank, "ALLGATHER", 13, "odd").passes(0.01).waits_in_backward(rank, 13, group)
    met.waits_in_backward(0, 13, "even", "ALLGATHER")
    (found,) = [one for one in met.passes(2).find() if one.kind == "hang.group_cycle"]
    assert (found.ranks == (2,)) is (along == (2,))
    assert 0 not in found.ranks or along != (2,)


def test_who_receives_for_the_first_time_has_not_come_alone() -> None:
    """All send to the next and receive from the one before, for the first time; one goes on without its send."""
    met = job(3)
    for turn in range(1, 13):
        for rank in range(3):
            met.passes(0.01).recorded(rank, "ALLREDUCE", turn)
    met.passes(0.1).waits_in_backward(1, 13).waits_in_backward(0, 13).receives(2, peer=1, site=at("main", line=37))
    met.passes(2)
    scene = scene_of(met.state)
    waits = {rank: scene.graph.waits[rank][0] for rank in (1, 2)}
    assert history.alone_there(scene, waits) == ()


@pytest.mark.parametrize(("turned", "culprits"), [((0, 2), (1,)), ((0, 1, 2), (1, 2))])
def test_who_keeps_its_partners_where_most_have_turned_to_others_is_at_fault(
    turned: tuple[int, ...], culprits: tuple[int, ...]
) -> None:
    """A ring of three that turns round, but for one rank."""
    made, line = job(3), at("gossip", line=18)
    for rank in range(3):
        for _ in range(12):
            made.did(rank, "SEND", line, peer=(rank + 1) % 3).did(rank, "RECV", line, peer=(rank - 1) % 3)
    made.receives(0, peer=1, site=line).sends(1, peer=2, site=line).sends(2, peer=1, site=line)
    if 1 in turned:
        made.ranks[1].detail = made.ranks[1].detail.with_(history=made.ranks[0].detail.history)  # it had other ones
    found = made.passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", culprits)
    assert ("most ranks have turned to others" in found.summary) == (culprits == (1,))


@pytest.mark.parametrize(("before", "culprits"), [(False, (3,)), (True, (2,))])
def test_of_a_call_that_most_make_for_the_first_time_who_did_not_come_along_is_at_fault(
    before: bool, culprits: tuple[int, ...]
) -> None:
    """The first evaluation, and one rank has a batch more: it is in its own shards' operation still."""
    met = job(4, groups={"shards": (2, 3)})
    for step in range(12):
        for rank in (2, 3):
            met.did(rank, "ALLGATHER", at("forward", line=36), entered_s=met.now_s - 12 + step)
            met.did(rank, "REDUCE_SCATTER", at("train", line=85), entered_s=met.now_s - 11.5 + step)
            if before and step == 6:  # from another place, it was made already
                met.did(rank, "ALLREDUCE", at("validate", line=65), entered_s=met.now_s - 11.4 + step)
    for rank in (0, 1, 2):
        met.did(rank, "ALLGATHER", at("forward", line=36), entered_s=met.now_s - 0.1)
        met.waits(rank, seq=1, site=at("validate", line=65))
    met.waits(3, "ALLGATHER", seq=286, group="shards", site=at("forward", line=36))
    assert met.passes(2).finds().ranks == culprits


def test_ranks_that_come_by_their_usual_line_have_not_come_along_with_the_one_that_changed_its_order() -> None:
    """A pair and then all, on a rank of the pair the other way round once, and the last rank only ever meets all."""
    met = job(3, groups={"pair": (0, 1)})
    for step in range(12):
        for rank in (0, 1):
            met.did(rank, "ALLREDUCE", at("train", line=15), entered_s=met.now_s - 12 + step)
        for rank in (0, 1, 2):
            met.did(rank, "ALLREDUCE", at("train", line=16), entered_s=met.now_s - 11.5 + step)
    met.waits(0, seq=13, group="pair", site=at("train", line=15))
    met.waits(1, seq=13, site=at("train", line=12)).waits(2, seq=13, site=at("train", line=16))
    found = met.passes(2).finds()
    assert (found.kind, found.ranks) == ("hang.group_cycle", (1,))


@pytest.mark.parametrize(("sends", "said"), [((0, 2), True), ((0, 1, 2), False), ((2,), False)])
def test_who_left_a_send_out_that_all_others_have_called_there_is_at_fault_and_not_who_waits_for_it(
    sends: tuple[int, ...], said: bool
) -> None:
    """Around a ring of three; who has all that it waits for goes on to a collective that is new to all."""
    around, after = at("around", line=13), at("done", line=14)
    made = job(3).train(0, 1, 2).passes(2)
    for rank in range(3):
        met_s = made.now_s - 1.0
        made.did(rank, "ALLREDUCE", at("step", line=9), seq=25, entered_s=met_s)
        if rank in sends:
            made.did(rank, "SEND", around, peer=(rank + 1) % 3, entered_s=met_s + 0.5)
        if rank != 2:
            made.did(rank, "RECV", around, peer=(rank - 1) % 3, entered_s=met_s + 0.6)
    for rank in (0, 1):
        made.waits(rank, "BARRIER", seq=26, site=after)
    made.receives(2, peer=1, site=around)
    found = next(one for one in made.passes(2).find() if one.kind == "hang.p2p_unmatched")
    assert ("without the send or receive that all others have called there" in found.summary) == said
    if said:
        assert found.ranks == (1,)


def test_a_circle_over_several_groups_is_said_once_the_flight_recorders_were_read_or_there_are_none() -> None:
    groups: dict[str, tuple[int, ...]] = {"a": (0, 1), "b": (0, 1)}
    stuck = job(2, groups=groups)
    for rank in (0, 1):
        stuck.issued(rank, "ALLREDUCE", 1, "a")
        stuck.ranks[rank].facts.operations = 100
    stuck.waits(0, seq=5, group="a").waits(1, seq=5, group="b").passes(3)
    assert stuck.find() == ()
    for rank in (0, 1):
        stuck.ranks[rank].detail = stuck.ranks[rank].detail.with_(notes=("no flight recorder: this torch has none",))
    assert stuck.finds().kind == "hang.group_cycle"
