"""Among several jobs a person can tell which is which."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diagd.daemon.agent import dump, outside
from diagd.daemon.agent.outside import OutsideRank
from diagd.daemon.cli import jobs, reports
from diagd.daemon.cli.choices import _with_others, choices, listed
from diagd.daemon.errors import DiagdError


def test_a_choice_shows_its_processes_and_what_they_run() -> None:
    two = [OutsideRank(rank, 100 + rank, job="a", command="python train.py --lr 1") for rank in (0, 1)]
    assert listed(_with_others({}, [*two, OutsideRank(0, 200, job="b c", command="python other.py")])).splitlines() == [
        "--job a    2 ranks, without diagd, pids 100,101: python train.py --lr 1",
        "--job 'b c'    1 rank, without diagd, pid 200: python other.py",
    ]


def test_a_job_that_is_just_starting_under_diagd_is_not_said_to_run_without_it() -> None:
    rank = OutsideRank(0, 100, job="a", command="python train.py", run_dir=Path("/run/a"))
    found = _with_others({}, [rank])
    assert listed(found) == "--job a    1 rank, has told diagd nothing yet, pid 100: python train.py"
    assert found["a"].what == "job a, whose ranks have told diagd nothing yet"


def test_jobs_without_a_name_are_told_apart_by_who_started_them() -> None:
    started = ((1, "", 7), (2, "none", 8), (3, "", 7))
    found = _with_others({}, [OutsideRank(0, pid, job=job, parent=parent) for pid, job, parent in started])
    assert {name: [t.pid for t in choice.targets] for name, choice in found.items()} == {
        "unnamed": [1, 3],
        "unnamed~2": [2],
    }


def test_many_processes_do_not_fill_the_screen() -> None:
    many = [OutsideRank(rank, rank + 1, job="a", command="x" * 500) for rank in range(1000)]
    assert len(listed(_with_others({}, many))) < 200


def test_incidents_of_several_running_jobs_are_asked_for_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running: Any = [SimpleNamespace(job=name, info={}, run_dir=str(tmp_path / name), pid=1) for name in ("a", "b")]
    for module in (jobs, reports):
        monkeypatch.setattr(module, "running_jobs", lambda: running)
    with pytest.raises(DiagdError, match="several jobs run here") as caught:
        reports.find_report(None)
    assert caught.value.exit_code == 2
    with pytest.raises(DiagdError, match="no job is called c"):
        reports.find_report("c")


def test_ranks_that_were_started_by_hand_and_meet_at_one_place_are_one_job() -> None:
    places = {1: "127.0.0.1:29501", 2: "127.0.0.1:29501", 3: "127.0.0.1:29502"}
    ranks = [OutsideRank(pid - 1, pid, parent=pid + 10, meets_at=place) for pid, place in places.items()]
    found = _with_others({}, ranks)
    assert {name: [t.pid for t in choice.targets] for name, choice in found.items()} == {
        "unnamed": [1, 2],
        "unnamed~2": [3],
    }


def test_the_beginning_of_a_name_is_enough_where_one_job_alone_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {name: Path(f"/run/{name}") for name in ("bert-large", "bert-base", "gpt 2")}
    found = [SimpleNamespace(job=name, run_dir=path, info={"command": ["a b"]}) for name, path in named.items()]
    monkeypatch.setattr(jobs, "running_jobs", lambda: found)
    assert jobs.find_job("gpt").job == "gpt 2"
    assert jobs.find_job("bert-b").job == "bert-base"
    with pytest.raises(DiagdError, match="no running job is called bert") as failed:
        jobs.find_job("bert")
    assert "--job 'gpt 2'    'a b'" in str(failed.value.help)


def test_of_two_jobs_of_one_name_dump_and_status_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one has a folder's name of its own; the newest comes first."""
    both: Any = [SimpleNamespace(job=f, run_dir=Path(f), info={"job_id": "bert"}) for f in ("bert-2", "bert")]
    monkeypatch.setattr(jobs, "running_jobs", lambda: both)
    monkeypatch.setattr(dump, "targets_of_run", lambda run_dir: [SimpleNamespace(pid=1, rank=0, box=run_dir)])
    monkeypatch.setattr(outside, "find_ranks", lambda: [])
    meant: dict[str, Any] = {name: choice.targets[0].box for name, choice in choices().items()}
    assert meant == {name: jobs.find_job(name).run_dir for name in ("bert-2", "bert")}
