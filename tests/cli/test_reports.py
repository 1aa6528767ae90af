"""A report that is not the whole story is never taken for one, and a job without diagd is not passed over."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.report.reports import incident, report

from diagd.daemon.agent import outside
from diagd.daemon.agent.outside import OutsideRank
from diagd.daemon.cli import jobs, reports
from diagd.daemon.cli.choices import without_diagd
from diagd.daemon.cli.main import main
from diagd.daemon.errors import DiagdError
from diagd.daemon.supervisor import Place


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No other job of this machine comes in."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for module in (jobs, reports):
        monkeypatch.setattr(module, "running_jobs", list)
    monkeypatch.setattr(outside, "find_ranks", list)
    monkeypatch.setattr(outside, "find_trainings", list)


def write(place: Path, *incidents: dict[str, Any], **changes: Any) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "report.json").write_text(json.dumps(report(*incidents, **changes)))
    return place


@pytest.mark.parametrize(("final", "code"), [({"final": False}, 3), ({"final": True}, 0), ({}, 0)])
def test_a_report_that_ends_before_its_job_is_no_clean_bill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], final: dict[str, bool], code: int
) -> None:
    place = write(tmp_path / "rep", **final)
    for words in ([str(place)], [str(place / "report.json"), "--json"]):
        assert main(["incidents", *words]) == code
        assert ("is not whole" in capsys.readouterr().err) is (code == 3)
    write(tmp_path / "rep", incident(), **final)
    assert main(["incidents", str(place), "--fail"]) == 1


def test_of_two_jobs_of_one_name_each_is_found_by_what_it_was_told(tmp_path: Path) -> None:
    home = tmp_path / "state/diagd"
    named = {"dup@here": "dup", "dup-2@here": "dup-2", "a_b-1f@here": "a b"}
    for folder, name in named.items():
        found = report(incident(), final=True)
        write(home / folder)
        (home / folder / "report.json").write_text(json.dumps({**found, "job": {**found["job"], "id": name}}))
    for source, name in (*((folder, name) for folder, name in named.items()), ("dup", "dup"), ("dup-2", "dup-2"),
                         ("a_b-1f", "a b"), ("a b", "a b")):  # fmt: skip
        assert reports.find_report(source).report["job"]["id"] == name


def test_a_job_whose_supervisor_was_killed_is_found_where_its_report_was_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    place = write(tmp_path / "rep", incident(), final=False)
    name = report()["job"]["id"]
    jobs.note_home(Place(tmp_path / "run/night", -1), place, name)
    found = reports.find_report("night")
    assert (found.report["job"]["id"], found.home, found.whole) == (name, place, False)
    jobs.note_home(Place(tmp_path / "run/night", -1), place, "another")  # whose report that folder has not got
    with pytest.raises(DiagdError, match="no job is called night") as caught:
        reports.find_report("night")
    assert "known are" not in (caught.value.help or "")


def test_of_an_earlier_run_of_that_name_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run = Place(tmp_path / "run/night", -1)
    write(jobs.kept_home(run), incident())
    jobs.note_home(run, tmp_path / "rep", "night")
    with pytest.raises(DiagdError, match="no job is called night"):
        reports.find_report("night")


def test_where_its_disk_was_full_the_report_is_found_where_it_was_kept(tmp_path: Path) -> None:
    place = write(tmp_path / "rep", final=False)
    kept = report(incident(), final=True, folder=str(place))
    other = write(tmp_path / "state/diagd/other")
    (other / "report.json").write_text(json.dumps({**kept, "job": {**kept["job"], "id": "b"}}))
    assert not reports.find_report(str(place)).whole
    write(tmp_path / "state/diagd/job-1", incident(), final=True, folder=str(place))
    found = reports.find_report(str(place))
    assert (found.whole, found.report["incidents"][0]["id"], found.home) == (True, "i1", place)


def test_of_a_job_that_runs_its_report_is_whole_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write(tmp_path / "rep", final=False)
    running = SimpleNamespace(job="a", info={"report": str(place)}, run_dir=tmp_path)
    monkeypatch.setattr(reports, "running_jobs", lambda: [running])
    found = reports.find_report(str(place))
    assert found.whole
    assert "job a runs, and its watch process does not answer" in found.caveat


def test_ranks_without_diagd_are_told_where_no_job_of_diagds_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = [OutsideRank(rank, 70 + rank, job="bert", command="train.py") for rank in (0, 1)]
    monkeypatch.setattr(outside, "find_ranks", lambda: [*ranks, OutsideRank(0, 90, job="own", run_dir=tmp_path)])
    told = "diagd dump --job bert    2 ranks, without diagd, pids 70,71: train.py"
    for words in (["status"], ["top", "--once"], ["incidents"], ["status", "--job", "x"]):
        assert main(words) == 4
        assert told in capsys.readouterr().err
    write(tmp_path / "state/diagd/a")
    assert main(["incidents"]) == 0
    assert told in capsys.readouterr().err
    assert main(["incidents", "a"]) == 0
    assert capsys.readouterr().err == ""


def test_a_lone_training_without_diagd_is_told_by_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(5, "python train.py", ""), (6, "python other.py", "/dev/shm/diagd-0/job")]
    monkeypatch.setattr(outside, "find_trainings", lambda: found)
    assert [line.split() for line in without_diagd().splitlines()[1:]] == [
        ["diagd", "dump", "--pid", "5", "python", "train.py"]
    ]
    with pytest.raises(DiagdError) as failed:
        jobs.find_job(None)
    assert "--pid 5" in failed.value.help
