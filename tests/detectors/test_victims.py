"""Who waits for the culprit itself, in which group's operation, and who waits for those."""

from tests.detectors.states import Job, at, job

from diagd.daemon.incidents.book import IncidentBook
from diagd.daemon.incidents.incident import incident_from_json
from diagd.daemon.report.text import verdict_lines

MESH: dict[str, tuple[int, ...]] = {"tp0": (0, 1), "tp1": (2, 3), "dp0": (0, 2), "dp1": (1, 3)}


def mesh_waits_for_rank_3() -> Job:
    """Two replicas of two shards: ranks 1 and 2 wait for rank 3, each in a group of its own, and rank 0 for rank 1."""
    stuck = job(4, hang_after_s=10, groups=MESH).outside(3, "load")
    return stuck.waits(1, seq=721, group="dp1").waits(2, seq=92, group="tp1").waits(0, seq=92, group="tp0").passes(11)


def test_ranks_that_wait_in_several_groups_are_not_told_under_one_of_them() -> None:
    found = mesh_waits_for_rank_3().finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.rank_blocked", (3,), (0, 1, 2))
    assert found.summary.endswith(
        "; rank 1 waits in ALLREDUCE #721 of group dp1 and rank 2 in ALLREDUCE #92 of group tp1 for 11 s; "
        "rank 0 waits for rank 1."
    )
    assert (
        found.waits == "rank 1 in ALLREDUCE #721 of group dp1; rank 2 in ALLREDUCE #92 of group tp1; rank 0 for rank 1"
    )


def test_the_evidence_names_first_who_waits_for_the_culprit_itself_and_for_whom_the_others_do() -> None:
    waiting = [e for e in mesh_waits_for_rank_3().finds().causes[0].evidence if e.what.startswith("in ALLREDUCE")]
    assert [e.rank for e in waiting] == [1, 2, 0]
    assert waiting[2].what == "in ALLREDUCE #92 of group tp0 for 11 s, for rank 1"


def test_the_verdict_and_its_form_in_a_report_tell_who_waits_where() -> None:
    stuck, book = mesh_waits_for_rank_3(), IncidentBook()
    for _ in range(8):
        book.update(stuck.passes(0.5).find(), stuck.state)
    said = book.incidents[0].as_json()
    assert incident_from_json(said).as_json() == said
    waiting = next(line for line in verdict_lines(said) if "waiting" in line)
    assert "rank 2 in ALLREDUCE #92 of group tp1; rank 0 for rank 1" in waiting


def test_ranks_in_one_operation_are_told_as_one() -> None:
    found = job(3, hang_after_s=10).waits(0, seq=120).waits(1, seq=120).outside(2).passes(11).finds()
    assert found.summary.endswith("ranks 0,1 wait in ALLREDUCE #120 of group 0 for 11 s.")
    assert found.waits == ""


def test_in_a_chain_of_receives_only_the_first_waits_for_the_culprit() -> None:
    found = job(3, hang_after_s=10).receives(1, peer=0).receives(2, peer=1).outside(0, "load").passes(11).finds()
    assert found.summary.endswith("rank 1 waits in RECV from rank 0 for 11 s; rank 2 waits for it.")
    assert found.waits == "rank 1 in RECV from rank 0; rank 2 for that"


def test_who_waits_for_all_that_wait_for_the_culprit_waits_for_these() -> None:
    groups: dict[str, tuple[int, ...]] = {"a": (1, 3), "b": (2, 3), "c": (0, 1, 2)}
    stuck = job(4, hang_after_s=10, groups=groups).outside(3).waits(1, seq=2, group="a").waits(2, seq=2, group="b")
    found = stuck.waits(0, seq=5, group="c").passes(11).finds()
    assert found.waits == "rank 1 in ALLREDUCE #2 of group a; rank 2 in ALLREDUCE #2 of group b; rank 0 for these"


def test_of_many_operations_the_most_waited_in_are_told() -> None:
    groups: dict[str, tuple[int, ...]] = {f"g{n}": (0, n) for n in range(1, 6)}
    stuck = job(6, hang_after_s=10, groups=groups).outside(0, "load")
    for rank in range(1, 6):
        stuck.waits(rank, "BARRIER", seq=2, group=f"g{rank}")
    assert stuck.passes(11).finds().waits == (
        "rank 1 in BARRIER #2 of group g1; rank 2 in BARRIER #2 of group g2; ranks 3-5 in others"
    )


def test_who_waits_for_a_dead_rank_is_told_in_its_own_group() -> None:
    stuck = job(4, hang_after_s=10, groups=MESH).waits(1, seq=721, group="dp1").waits(2, seq=92, group="tp1")
    found = stuck.waits(0, seq=92, group="tp0").outside(3).passes(3).dies(3, signal="SIGKILL").passes(3).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("exit.killed", (3,), (0, 1, 2))
    assert "rank 2 in ALLREDUCE #92 of group tp1; rank 0 waits for rank 1" in found.summary


def test_who_waits_behind_a_circle_is_told_apart_from_those_on_it() -> None:
    groups: dict[str, tuple[int, ...]] = {"a": (0, 1), "b": (0, 1), "c": (1, 2)}
    stuck = job(3, groups=groups).waits(0, seq=3, group="a", site=at("f", line=1))
    found = stuck.waits(1, seq=4, group="b", site=at("f", line=2)).waits(2, seq=7, group="c").passes(9).finds()
    assert found.kind == "hang.group_cycle"
    assert found.waiting_ranks == (2,)
    assert found.waits == ""  # all that wait do so in one operation
