"""What `diagd top` reads beside the window: a job's end, errors on the way, stacks."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.aggregator.fakes import wait_for
from tests.cli.statuses import NOW_S, rank, status
from tests.report.reports import report

from diagd.daemon.agent.discovery import Job
from diagd.daemon.cli.jobs import is_running, supervisor_lives
from diagd.daemon.cli.jobview import feed as feeding
from diagd.daemon.cli.jobview.ending import ended, last_words
from diagd.daemon.cli.jobview.feed import Feed, News, pause_s, stacks_of

RUN: dict[str, Any] = {"job_id": "demo", "started_s": NOW_S, "supervisor_pid": os.getpid(), "exit_code": None}


def job(run_dir: Path, **changes: Any) -> Job:
    return Job("demo", run_dir, {**RUN, **changes})


def test_a_job_goes_on_until_something_says_that_it_has_ended(tmp_path: Path) -> None:
    judged, unjudged = status(rank(0)), {**status(rank(0)), "source": "boxes"}
    assert not ended(job(tmp_path), judged)
    assert not ended(job(tmp_path), unjudged)
    assert ended(job(tmp_path), status(rank(0), ended_at=NOW_S))
    assert ended(job(tmp_path, exit_code=0), judged)
    assert ended(job(tmp_path, supervisor_pid=2**30), unjudged)
    assert not ended(job(tmp_path, supervisor_pid=2**30), judged)
    assert ended(job(tmp_path / "removed"), unjudged)


def test_what_has_ended_and_was_not_waited_for_runs_no_more(tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    try:
        wait_for(lambda: not supervisor_lives({"supervisor_pid": process.pid}))
        assert process.returncode is None
        assert not is_running(job(tmp_path, supervisor_pid=process.pid))
        assert is_running(job(tmp_path))
    finally:
        process.wait()


def test_other_nodes_may_end_before_this_one(tmp_path: Path) -> None:
    assert not ended(job(tmp_path), {**status(rank(0), ended_at=NOW_S), "source": "aggregator"})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "job demo has ended with exit code 0"),
        (86, "job demo has ended: diagd ended it (exit code 86)"),
        (137, "job demo has ended by SIGKILL (exit code 137)"),
        (255, "job demo has ended with exit code 255"),
        (None, "job demo has ended; its exit code is not known"),
    ],
)
def test_how_it_ended_is_said(tmp_path: Path, code: int | None, words: str) -> None:
    assert last_words(job(tmp_path, exit_code=code), status(rank(0))) == [words]


def test_the_last_report_is_of_this_run_or_of_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    kept = tmp_path / f"state/diagd/run@{os.uname().nodename.partition('.')[0]}"
    kept.mkdir(parents=True)
    asked = tmp_path / "asked"
    asked.mkdir()
    found = report()
    found["job"].update(started_at=NOW_S, exit_code=86)
    older = json.loads(json.dumps(found))
    older["job"].update(started_at=NOW_S - 60, exit_code=0)
    (asked / "report.json").write_text(json.dumps(older))
    here = job(tmp_path / "run", report=str(asked), exit_code=1)
    assert last_words(here, status())[0] == "job demo has ended with exit code 1"
    (kept / "report.json").write_text(json.dumps(found))
    said = last_words(here, status())
    assert said[0] == "job demo has ended: diagd ended it (exit code 86)"
    assert len(said) > 1
    stale = {**found, "final": False, "ranks": []}  # of a full disk: the one of the start
    (asked / "report.json").write_text(json.dumps(stale))
    assert last_words(here, status()) == said
    (kept / "report.json").unlink()
    assert last_words(here, status())[-1].startswith("The last report could not be written")


@pytest.fixture
def wake() -> Any:
    read, write = os.pipe2(os.O_NONBLOCK)
    yield write
    os.close(read)
    os.close(write)


def test_a_look_that_fails_is_said_and_the_next_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wake: int
) -> None:
    damaged: dict[str, Any] = {"job": {}, "source": "watch", "ranks": [{}]}
    answers = iter([damaged, status(rank(0)), status(rank(0), ended_at=NOW_S, exit_code=3)])
    monkeypatch.setattr(feeding, "read_status", lambda job: next(answers))
    feed = Feed(job(tmp_path), 0.01, wake)
    feed.start()
    wait_for(lambda: not feed.busy("status"))
    news: list[News] = []
    while not feed.news.empty():
        news.append(feed.news.get())
    assert [item.what for item in news] == ["failed", "snapshot", "ending", "ended"]
    assert news[0].value == "KeyError: 'ended_at'"
    assert news[-1].value == ["job demo has ended with exit code 3"]


def test_looks_keep_their_interval_until_they_cost_too_much() -> None:
    assert pause_s(1.0, took_s=0.25, cpu_s=0.009) == 0.75
    assert pause_s(0.1, took_s=0.3, cpu_s=0.0) == 0.05
    assert pause_s(1.0, took_s=0.25, cpu_s=0.1) == pytest.approx(2.4)


def test_one_thing_of_a_kind_at_a_time(tmp_path: Path, wake: int) -> None:
    feed, go_on, refused = Feed(job(tmp_path), 1.0, wake), threading.Event(), threading.Event()
    feed.run("dump", lambda: go_on.wait(10))
    feed.run("dump", refused.set)
    assert feed.busy("dump")
    go_on.set()
    feed.stop(5.0)
    assert not feed.busy("dump")
    assert not refused.is_set()


def test_a_rank_that_is_not_here_has_its_place_named(tmp_path: Path) -> None:
    assert "it runs on n7" in stacks_of(tmp_path, 3, "n7")[0]
    assert "left no record" in stacks_of(tmp_path, 3, "")[0]


def test_stacks_are_those_of_a_dump(tmp_path: Path) -> None:
    stand_in = Path(__file__).parents[1] / "agent/stand_in_rank.py"
    command = [sys.executable, str(stand_in), str(tmp_path), "3", "wait"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (found,) = stacks_of(tmp_path, 3, "")
    finally:
        process.kill()
        process.communicate()
    assert f"rank process {process.pid}" in found
    assert "* main (" in found


def test_a_dump_of_nothing_is_said(tmp_path: Path, wake: int) -> None:
    feed = Feed(job(tmp_path), 1.0, wake)
    feed.dump(tmp_path / "out")
    wait_for(lambda: not feed.busy("dump"))
    assert feed.news.get() == News("dump", "no rank of this job runs on this machine: nothing to dump")
