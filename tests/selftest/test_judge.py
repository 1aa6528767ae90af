"""What counts as the right verdict."""

from typing import Any

import pytest
from tests.report.reports import incident, report

from diagd.daemon.selftest.drills import DRILLS, Drill
from diagd.daemon.selftest.judge import expected, judge
from diagd.probes.faults import KINDS, parse

CLEAN = Drill(name="clean", ranks=2, steps=30)
HANG = Drill(name="hang", fault="hang:rank=1,step=3", kind="hang.rank_blocked")
MEANT = {"kind": "hang.rank_blocked", "ranks": [1], "severity": "critical", "state": "open"}


def said(*changes: dict[str, Any], steps: tuple[int, ...] = ()) -> dict[str, Any]:
    made = report(*(incident(**{**MEANT, **change}) for change in changes))
    if steps:
        made["ranks"] = [{"rank": rank, "step": step} for rank, step in enumerate(steps)]
    return made


def right(drill: Drill, made: dict[str, Any] | None, exit_code: int | None = None) -> bool | None:
    judged = judge(drill, made, exit_code)
    return None if judged is None else judged.right


def test_the_verdict_that_is_meant_is_right_as_soon_as_it_comes() -> None:
    judged = judge(HANG, said({}), None)
    assert judged is not None
    assert (judged.right, judged.said) == (True, "hang.rank_blocked, rank 1")


def test_one_that_came_and_was_resolved_when_the_job_died_still_came() -> None:
    assert right(HANG, said({"state": "resolved"}), 1) is True


@pytest.mark.parametrize(
    "change", [{"kind": "hang.data_starved"}, {"ranks": [2]}, {"ranks": [0, 1]}, {"severity": "warning"}]
)
def test_another_one_is_waited_over_and_wrong_in_the_end(change: dict[str, Any]) -> None:
    assert right(HANG, said(change)) is None
    assert right(HANG, said(change), 1) is False


def test_a_false_one_beside_it_is_wrong() -> None:
    assert right(HANG, said({}, {"kind": "hang.rank_missing", "ranks": [0]})) is False
    assert right(HANG, said({}, {"kind": "slow.data", "ranks": [0], "severity": "warning"})) is True


@pytest.mark.parametrize("made", [None, said()])
def test_silence_is_waited_over_and_wrong_in_the_end(made: dict[str, Any] | None) -> None:
    assert right(HANG, made) is None
    judged = judge(HANG, made, 0)
    assert judged is not None
    assert (judged.right, judged.said) == (False, "nothing")


def test_of_a_healthy_job_nothing_may_be_said() -> None:
    assert right(CLEAN, said(steps=(30, 30))) is None
    assert right(CLEAN, said(steps=(30, 30)), 0) is True
    assert right(CLEAN, said({"severity": "info"}, steps=(30, 30))) is False


@pytest.mark.parametrize(("steps", "exit_code"), [((30, 30), 1), ((30, 29), 0), ((30,), 0)])
def test_silence_about_a_healthy_job_that_was_not_seen_is_no_proof(steps: tuple[int, ...], exit_code: int) -> None:
    assert right(CLEAN, said(steps=steps), exit_code) is False


def test_nothing_at_all_is_no_proof_either() -> None:
    assert right(CLEAN, None, 0) is False


def test_every_fault_is_tried_and_so_is_a_job_without_one() -> None:
    assert sorted(drill.name for drill in DRILLS) == sorted([*KINDS, "clean"])


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_a_drill_plants_its_fault_in_the_rank_that_must_be_named(drill: Drill) -> None:
    if not drill.fault:
        assert expected(drill) == "nothing"
        return
    fault = parse(drill.fault)
    assert fault.kind == drill.name
    assert [rank for rank in range(drill.ranks) if fault.hits(rank)] == list(drill.culprits)
    assert fault.steps[0] < drill.steps
