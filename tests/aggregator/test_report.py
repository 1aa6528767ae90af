"""report.json: after the schema, whole at every moment, and with all ranks that ever were."""

import json
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.aggregator.fakes import incident

from diagd.daemon.aggregator.reporting import LOST_AFTER_S, job_report, write_report
from diagd.daemon.detectors.finding import Severity
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Exit, Facts, Status
from diagd.daemon.state.tensors import LedgerNews

SCHEMA = json.loads((Path(__file__).parents[1] / "contract/report.schema.json").read_text(encoding="utf-8"))


def checked(report: dict[str, Any]) -> dict[str, Any]:
    jsonschema.validate(report, SCHEMA, format_checker=jsonschema.FormatChecker())
    return report


def trained() -> JobState:
    state = JobState(job_id="j", command=("python", "t.py"), started_s=50.0)
    facts = [
        Facts(0, pid=10, step=5, phase="collective", status=Status.BLOCKED),
        Facts(1, pid=11, step=-1, phase="a phase of tomorrow"),
        Facts(2, pid=12, status=Status.KILLED),
        Facts(3, pid=13, status=Status.EXITED),
    ]
    details = [
        Detail(0, host="h", node="n", pid=10, notes=("no ptrace",)),
        Detail(1, host="h", node="n", pid=11, notes=("no ptrace", "no stack signal")),
        Detail(2, host="h", node="n", pid=12, exit=Exit(99.0, signal="SIGKILL", oom_killed=True), notes=("no ptrace",)),
        Detail(3, host="h", node="n", pid=13, exit=Exit(99.0, code=3), notes=("no ptrace",)),
    ]
    state.apply(facts, details, 100.0)
    return state


def test_a_job_with_no_rank_has_a_valid_report() -> None:
    report = checked(job_report(JobState(job_id="j"), []))
    assert report["job"]["world_size"] is None
    assert report["ranks"] == []


def test_ranks_are_there_with_what_became_of_them() -> None:
    report = checked(job_report(trained(), [incident()]))
    assert [(r["state"], r["step"], r["phase"], r["exit"]) for r in report["ranks"]] == [
        ("blocked", 5, "collective", None),
        ("running", None, "other", None),
        ("killed", None, "init", "SIGKILL"),
        ("exited", None, "init", "3"),
    ]


def test_a_note_names_its_ranks_where_it_is_not_true_of_all() -> None:
    assert job_report(trained(), [])["notes"] == ["no ptrace", "no stack signal (rank 1)"]


def test_tensors_that_are_not_compared_are_counted_where_there_is_somebody_to_compare_with() -> None:
    state = trained()
    state.tensors.apply([LedgerNews(0, 10, left_out=3), LedgerNews(1, 11, left_out=3), LedgerNews(2, 12)], 4)
    (note,) = (note for note in job_report(state, [])["notes"] if "3 tensors are not compared" in note)
    assert note.endswith("(rank 0, 1)")
    alone = JobState(job_id="j")
    alone.apply([Facts(0, pid=10)], [Detail(0, pid=10)], 100.0)
    alone.tensors.apply([LedgerNews(0, 10, left_out=3)], 1)
    assert job_report(alone, [])["notes"] == []


def test_a_rank_out_of_sight_is_lost_but_not_one_that_ended_or_whose_job_did() -> None:
    state = trained()
    state.tick(100.0 + LOST_AFTER_S + 1)
    assert [r["state"] for r in job_report(state, [])["ranks"]] == ["lost", "lost", "killed", "exited"]
    state.end(0, state.now_s)
    assert [r["state"] for r in job_report(state, [])["ranks"]] == ["blocked", "running", "killed", "exited"]


def test_incidents_are_ordered_by_severity_and_then_by_age() -> None:
    incidents = [
        incident("late", opened_s=9.0),
        incident("mild", severity=Severity.WARNING, opened_s=1.0),
        incident("early", opened_s=5.0),
    ]
    report = checked(job_report(trained(), incidents))
    assert [i["id"] for i in report["incidents"]] == ["early", "late", "mild"]


def test_a_reader_never_sees_half_a_report(tmp_path: Path) -> None:
    report, broken, stop = job_report(trained(), [incident()] * 50), [], threading.Event()
    write_report(tmp_path, report)

    def read() -> None:
        while not stop.is_set():
            try:
                json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
            except ValueError as exc:
                broken.append(exc)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(30):
        write_report(tmp_path, report)
    stop.set()
    reader.join()
    assert broken == []
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_report_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(OSError, match=r"report\.json"):
        write_report(tmp_path, job_report(trained(), []))
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]
