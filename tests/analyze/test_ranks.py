"""Ranks of which little is known: none is blamed for that, and what stays open is said."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.analyze.written import BEGUN_S, DUMPED_S, as_gloo, call, dump, faults, judged, save, world

WAITS = [call("all_reduce", 1), call("all_reduce", 2, state="started")]
BEHIND = [call("all_reduce", 1)]


def notes(found: Any) -> str:
    return "\n".join(found.report["notes"])


def without(folder: Path, rank: int) -> Path:
    (folder / f"trace_{rank}").unlink()
    return folder


def test_a_rank_without_a_file_is_named_and_not_blamed(tmp_path: Path) -> None:
    found = judged(without(save(tmp_path / "d", world(WAITS, WAITS, BEHIND)), 2))
    assert faults(found) == []
    assert found.partial
    assert "rank 2 left no dump" in notes(found)
    assert "ranks 0,1 wait in ALLREDUCE #2 of group 0, and for whom is not known" in notes(found)
    (lost,) = [row for row in found.report["ranks"] if row["rank"] == 2]
    assert lost["state"] == "lost"


def test_a_fault_is_found_although_another_rank_left_no_file(tmp_path: Path) -> None:
    found = judged(without(save(tmp_path / "d", world(WAITS, BEHIND, WAITS, WAITS)), 3))
    assert faults(found) == [("hang.rank_missing", [1])]
    assert found.partial


@pytest.mark.parametrize("broken", [b"", b"\x80\x02}q\x00(X\x07\x00\x00\x00"])
def test_a_rank_whose_file_is_empty_or_cut_off_is_as_one_without(tmp_path: Path, broken: bytes) -> None:
    folder = save(tmp_path / "d", world(WAITS, WAITS, BEHIND))
    (folder / "trace_2").write_bytes(broken)
    found = judged(folder)
    assert faults(found) == []
    assert "rank 2 left a dump that cannot be used: trace_2 is" in notes(found)
    assert found.partial


def test_the_last_rank_of_a_gloo_job_whose_file_is_empty_is_a_rank_of_it(tmp_path: Path) -> None:
    folder = save(tmp_path / "d", {r: as_gloo(said) for r, said in world(WAITS, WAITS, BEHIND).items()})
    (folder / "trace_2").write_bytes(b"")
    found = judged(folder)
    assert faults(found) == []
    assert found.report["job"]["world_size"] == 3


def test_a_stray_file_makes_no_ranks(tmp_path: Path) -> None:
    folder = save(tmp_path / "d", {r: as_gloo(said) for r, said in world(BEHIND, BEHIND).items()})
    (folder / "checkpoint_5000.pt").write_bytes(b"PK\x03\x04")
    (folder / "notes.txt").write_text("why?")
    found = judged(folder)
    assert found.report["job"]["world_size"] == 2
    assert not found.partial
    assert "checkpoint_5000.pt is no flight recorder's dump" in notes(found)


def test_a_valid_dump_without_entries_shows_that_its_rank_entered_nothing(tmp_path: Path) -> None:
    found = judged(save(tmp_path / "d", world(WAITS[1:], WAITS[1:], [])))
    assert faults(found) == [("hang.rank_missing", [2])]
    assert "its dump holds no operation at all" in str(found.report["incidents"][0]["causes"])


def test_counters_without_entries_say_how_far_a_rank_came(tmp_path: Path) -> None:
    """As in a dump of the operations that are under way, where a rank has none."""
    dumps = world(WAITS, WAITS, [])
    dumps[2]["pg_status"] = {"0": {"last_enqueued_collective": 1, "last_completed_collective": 1}}
    assert faults(judged(save(tmp_path / "behind", dumps))) == [("hang.rank_missing", [2])]
    dumps[2]["pg_status"]["0"]["last_enqueued_collective"] = 2
    assert [kind for kind, _ in faults(judged(save(tmp_path / "there", dumps)))] == ["hang.all_arrived"]


def test_entries_that_a_ring_has_lost_are_not_held_against_its_rank(tmp_path: Path) -> None:
    """Rank 1 has entered group b long ago; its ring holds group a alone."""
    groups = {"a": (0, 1), "b": (0, 1)}
    dumps = world(
        [*(call("all_reduce", n, group="a") for n in (900, 901)), call("all_reduce", 7, group="b", state="started")],
        [],
        groups=groups,
    )
    dumps[1] = dump([call("all_reduce", n, group="a") for n in (900, 901)], {"0": (0, 1), **groups}, first=5000)
    found = judged(save(tmp_path / "d", dumps))
    assert faults(found) == []
    assert found.partial
    assert notes(found) == (
        "rank 0 waits in ALLREDUCE #7 of group b, and for whom is not known: rank 1 has lost its older entries of it"
    )


def test_rings_that_begin_elsewhere_are_compared_where_both_have_entries(tmp_path: Path) -> None:
    early = dump([call("all_reduce", n) for n in range(1, 6)], {"0": (0, 1)})
    late = dump([call("all_reduce", n) for n in range(4, 6)], {"0": (0, 1)}, first=3)
    assert faults(judged(save(tmp_path / "d", {0: early, 1: late}))) == []


def test_a_dump_older_than_the_others_is_not_blamed(tmp_path: Path) -> None:
    ahead = [call("all_reduce", n) for n in range(1, 9)] + [call("all_reduce", 9, state="started")]
    found = judged(save(tmp_path / "d", world(ahead, ahead, BEHIND)))
    assert faults(found) == []
    assert "rank 2 has a dump that is older than the others'" in notes(found)


def test_what_is_said_of_several_ranks_has_the_form_for_several(tmp_path: Path) -> None:
    ahead = [call("all_reduce", n) for n in range(1, 9)] + [call("all_reduce", 9, state="started")]
    found = judged(save(tmp_path / "d", world(ahead, ahead, BEHIND, BEHIND)))
    assert "ranks 2,3 have a dump that is older than the others'" in notes(found)


def test_an_operation_that_gloo_gave_up_or_that_came_later_is_left_open(tmp_path: Path) -> None:
    done = [call("all_reduce", 1), call("all_reduce", 2)]
    dumps = {r: as_gloo(said) for r, said in world(done, BEHIND).items()}
    found = judged(save(tmp_path / "d", dumps))
    assert faults(found) == []
    assert "given up, which gloo marks alike" in notes(found)
    assert found.partial


def test_a_rank_that_was_dumped_before_the_others_waited_may_have_come_since(tmp_path: Path) -> None:
    folder = save(tmp_path / "d", world(WAITS, WAITS, BEHIND))
    os.utime(folder / "trace_2", (BEGUN_S - 30.0, BEGUN_S - 30.0))
    found = judged(folder)
    assert faults(found) == []
    assert "rank 2 was dumped before the others entered it" in notes(found)


@pytest.mark.parametrize(("age_s", "severity"), [(0.5, None), (20.0, "warning"), (600.0, "critical")])
def test_how_long_the_others_have_waited_decides_how_sure_it_is(
    tmp_path: Path, age_s: float, severity: str | None
) -> None:
    found = judged(save(tmp_path / "d", world(WAITS, WAITS, BEHIND), taken_s=BEGUN_S + age_s))
    assert [incident["severity"] for incident in found.report["incidents"]] == ([severity] if severity else [])


def test_patience_can_be_set(tmp_path: Path) -> None:
    folder = save(tmp_path / "d", world(WAITS, WAITS, BEHIND), taken_s=BEGUN_S + 20.0)
    (incident,) = judged(folder, hang_after_s=10.0).report["incidents"]
    assert incident["severity"] == "critical"


def test_of_two_dumps_of_a_rank_the_newer_counts(tmp_path: Path) -> None:
    folder = save(tmp_path / "d", world(WAITS, WAITS, WAITS))
    old = folder / "before" / "trace_2"
    old.parent.mkdir()
    old.write_bytes(pickle.dumps(dump(BEHIND, {"0": range(3)}), 2))
    os.utime(old, (DUMPED_S - 50.0, DUMPED_S - 50.0))
    found = judged(folder)
    assert [kind for kind, _ in faults(found)] == ["hang.all_arrived"]
    assert f"{old} is not used: {folder / 'trace_2'} is a newer dump of rank 2" in notes(found)


def test_the_size_of_a_gloo_job_shows_in_an_all_gather(tmp_path: Path) -> None:
    gathered = call("all_gather", 1, ((4,),), ((3, 4),))
    waits = [gathered, call("all_reduce", 2, state="started")]
    dumps = {r: as_gloo(said) for r, said in world(waits, waits).items()}
    found = judged(save(tmp_path / "d", dumps))
    assert (faults(found), found.report["job"]["world_size"]) == ([], 3)
    assert "rank 2 left no dump" in notes(found)


def test_the_size_of_a_gloo_job_can_be_told(tmp_path: Path) -> None:
    dumps = {r: as_gloo(said) for r, said in world(WAITS, WAITS).items()}
    folder = save(tmp_path / "d", dumps)
    (warning,) = judged(folder).report["incidents"]
    assert (warning["kind"], warning["severity"]) == ("hang.all_arrived", "warning")
    assert "whether it has more members is not known" in warning["summary"]
    assert faults(judged(folder, world_size=3)) == []
    (sure,) = judged(folder, world_size=2).report["incidents"]
    assert sure["severity"] == "critical"


def test_hosts_that_ran_ahead_of_their_devices_wait_in_the_first_that_is_not_done(tmp_path: Path) -> None:
    ahead = [call("all_reduce", 1), *(call("all_reduce", n, state="scheduled") for n in range(2, 300))]
    found = judged(save(tmp_path / "d", world(ahead, ahead, BEHIND)))
    assert faults(found) == [("hang.rank_missing", [2])]
    assert found.report["incidents"][0]["op"] == {"name": "ALLREDUCE", "seq": 2}


def test_dumps_that_an_older_larger_job_left_in_the_folder_blame_no_one(tmp_path: Path) -> None:
    old = world(*([WAITS] * 4))
    folder = save(tmp_path / "d", old, taken_s=DUMPED_S - 5000.0)
    save(folder, world(BEHIND, BEHIND))  # ranks 2 and 3 are the old job's
    found = judged(folder)
    assert faults(found) == []
    assert "has a dump in which that group has other members, so it may be of another job" in notes(found)


def test_a_rank_whose_dump_does_not_know_the_group_yet_has_not_entered_it(tmp_path: Path) -> None:
    """NCCL notes a group in the dump when the rank first uses it."""
    dumps = world([call("all_reduce", 1, group="tp", state="started")], [], groups={"tp": (0, 1)})
    del dumps[1]["pg_config"]["tp"]
    assert faults(judged(save(tmp_path / "d", dumps))) == [("hang.rank_missing", [1])]


def test_a_send_in_a_group_of_unknown_ranks_names_no_partner(tmp_path: Path) -> None:
    dumps = world(BEHIND, BEHIND, [*BEHIND, call("send 0->1", 1, state="started", group="pp")])
    del dumps[2]["pg_config"]
    assert faults(judged(save(tmp_path / "d", dumps))) == []
