"""A folder of --report that earlier runs have used, and jobs of one name at the same time."""

import os
from pathlib import Path

import pytest
from tests.supervisor.harness import Run, python, until
from tests.supervisor.test_run import REPORT

from diagd.daemon.cli.checks import State
from diagd.daemon.cli.reportdir import earlier_files, open_report_dir


def test_a_new_folder_needs_no_word(tmp_path: Path) -> None:
    assert earlier_files(open_report_dir(tmp_path / "new/folder")) == ""


def test_dumps_and_traces_of_earlier_runs_keep_their_names(tmp_path: Path) -> None:
    (tmp_path / "dumps/001-abc").mkdir(parents=True)
    for made, prefix in (("dumps/002", "run2-"), ("dumps/run2-001-abc", "run3-"), ("fr-run7", "run8-")):
        (tmp_path / made).mkdir()
        done = Run(tmp_path, {"report": REPORT}).finish("--report", ".", "--", "true")
        assert f"begin with {prefix[:-1]}" in done.stderr


def test_a_run_in_a_used_folder_says_so_and_touches_nothing_but_the_report(tmp_path: Path) -> None:
    old = tmp_path / "out/dumps/001-abc/summary.txt"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    traces = "import os, pathlib; pathlib.Path(os.environ['TORCH_FR_DUMP_TEMP_FILE'] + '0').write_text('new')"
    for _ in range(2):
        run = Run(tmp_path, {"report": REPORT})
        done = run.finish("--report", "out", *python(traces))
    assert old.read_text() == "old"
    assert f"{tmp_path}/out holds an earlier run's report" in done.stderr
    assert [note["options"]["--dump-prefix"] for note in run.notes() if "options" in note] == ["run2-", "run3-"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["dumps", "fr-run2", "fr-run3", "report.json"]


def test_two_runs_at_once_do_not_replace_each_others_report(tmp_path: Path) -> None:
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)"
    first, second = Run(tmp_path, {"report": REPORT}), Run(tmp_path, {"report": REPORT})
    process = first.start("--report", "out", *python("open('ready', 'w');" + wait))
    until((tmp_path / "ready").exists)
    done = second.finish("--report", "out", "--", "true")
    (tmp_path / "go").touch()
    process.communicate(timeout=30)
    assert f"another run writes its report to {tmp_path}/out now; this run's goes to {tmp_path}/out/run2" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").rglob("*")) == ["report.json", "report.json", "run2"]
    assert open_report_dir(tmp_path / "out").path == tmp_path / "out"


def test_an_earlier_runs_report_is_never_taken_for_this_runs(tmp_path: Path) -> None:
    Run(tmp_path, {"report": REPORT}).finish("--report", "out", "--", "true")
    done = Run(tmp_path).finish("--report", "out", "--", "true")
    assert "3 ranks" not in done.stderr
    assert "nothing is known of how the job went" in done.stderr
    assert "the report in out is an earlier run's" in done.stderr


def test_a_second_job_of_a_name_is_told_what_it_is_called_and_what_to_do(tmp_path: Path) -> None:
    name = f"twin{tmp_path.stat().st_ino}"
    first = Run(tmp_path).start("--job-id", name, "--", "sh", "-c", "echo up; read line", stdin=-1)
    assert first.stdout is not None
    first.stdout.readline()
    watched = Run(tmp_path)
    second = watched.finish("--job-id", name, "--", "true")
    first.communicate("\n")
    ids = [note["options"]["--job-id"] for note in watched.notes() if "options" in note]
    assert ids == [name, f"{name}-2"]  # so what is written of it is its own
    line = next(line for line in second.stderr.splitlines() if "another job" in line)
    assert line.startswith(f"diagd: another job called {name} runs on this node (process {first.pid})")
    assert f"diagd status --job {name}-2" in line
    assert "--job-id" in line


def test_a_run_inside_a_run_is_told_so_and_both_go_on(tmp_path: Path) -> None:
    run = Run(tmp_path)
    done = run.finish("--", *run.command("--", "sh", "-c", "exit 5"))
    assert done.returncode == 5
    (line,) = (line for line in done.stderr.splitlines() if "another" in line)
    assert line.startswith("diagd: this was started by another `diagd run` (job ")
    alone = Run(tmp_path, environ={"DIAGD_DIR": str(tmp_path / "gone")}).finish("--", "true")
    assert "another" not in alone.stderr


def test_the_outer_run_hears_where_the_ranks_report(tmp_path: Path) -> None:
    from diagd.daemon.cli.run import _outer

    (tmp_path / "run.json").write_text('{"job_id": "a", "supervisor_pid": 7}')
    assert "(job a, process 7)" in _outer({"DIAGD_DIR": str(tmp_path)})
    assert "of its own" in (tmp_path / f"{os.getpid()}.off").read_text()
    assert _outer({}) == ""


def test_an_account_without_a_home_is_given_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from diagd.daemon.cli.checks import _state_home
    from diagd.daemon.cli.jobs import fresh_home, keep_finished
    from diagd.daemon.supervisor import Place, Plan

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    place = Place(tmp_path / "run", -1)
    assert fresh_home(place) == tmp_path / "run/report"
    plan = Plan(
        command=["x"], environ={}, bootstrap=tmp_path, job_id="a", place=place, report_dir=tmp_path / "run/report"
    )
    assert keep_finished(plan, {"incidents": []}) == []
    assert "is not kept: there is no" in keep_finished(plan, {"incidents": [{}]})[0]
    assert _state_home().state is State.DEGRADED
    assert not (tmp_path / "none").exists()
    (tmp_path / "none").mkdir()
    home = fresh_home(place)
    assert home is not None
    assert home.is_relative_to(tmp_path / "none/.local/state/diagd")
