"""`diagd run --inject`: the option, the variable, and what a person is told; what a fault does is told elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from diagd.probes.faults import KINDS


def diagd_run(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "diagd.daemon.cli", "run", *words],
        env={**os.environ, "XDG_STATE_HOME": str(cwd / "state"), **environ},
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip


SHOW = ("--", "sh", "-c", "echo $DIAGD_INJECT")


def test_faults_reach_the_job_in_one_variable_and_are_said_to_disturb_it(tmp_path: Path) -> None:
    faults = ("hang:step=10,rank=3", "slow:rank=0,2-3,factor=2.0,step=20-60")
    done = diagd_run("--inject", faults[0], "--inject", faults[1], *SHOW, cwd=tmp_path)
    told = "hang:rank=3,step=10 slow:rank=0,2-3,step=20-60,factor=2"
    assert (done.returncode, done.stdout) == (0, f"{told}\n")
    assert f"diagd: this is a drill, which disturbs the job: {told}" in done.stderr.splitlines()


def test_the_variable_is_as_good_as_the_option_and_the_option_wins(tmp_path: Path) -> None:
    environ = {"DIAGD_INJECT": " kill:rank=1,step=2  stop:rank=0,step=1 "}
    assert diagd_run(*SHOW, cwd=tmp_path, **environ).stdout == "kill:rank=1,step=2 stop:rank=0,step=1\n"
    given = diagd_run("--inject", "exit:rank=0,step=1", *SHOW, cwd=tmp_path, **environ)
    assert given.stdout == "exit:rank=0,step=1\n"


@pytest.mark.parametrize("how", ["option", "variable"])
def test_what_is_no_fault_starts_no_job(how: str, tmp_path: Path) -> None:
    words = ["--inject", "hang:rnk=3"] if how == "option" else []
    environ = {} if words else {"DIAGD_INJECT": "hang:rnk=3"}
    done = diagd_run(*words, "--", "touch", "started", cwd=tmp_path, **environ)
    assert done.returncode == 2
    assert "fault 'hang:rnk=3': 'rnk' is not known" in done.stderr
    assert "expected e.g. hang:rank=3,step=10" in done.stderr
    assert not (tmp_path / "started").exists()


def test_without_it_nothing_is_said_of_drills(tmp_path: Path) -> None:
    done = diagd_run(*SHOW, cwd=tmp_path)
    assert (done.stdout, "drill" in done.stderr) == ("\n", False)


def test_the_help_names_every_fault_and_says_that_it_disturbs(tmp_path: Path) -> None:
    shown = diagd_run("--help", cwd=tmp_path).stdout
    assert [kind for kind in KINDS if kind not in shown] == []
    assert "meant to disturb" in shown


def test_the_help_of_run_names_each_drill(tmp_path: Path) -> None:
    said = diagd_run("--help", cwd=tmp_path).stdout.partition("--inject is the one thing")[2]
    assert [kind for kind in KINDS if not re.search(rf"(^|[ ,]){kind}\b", said)] == []
