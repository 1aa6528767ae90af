"""`diagd preflight`: what it says of the tensors, and how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from diagd.daemon.cli.preflight import facts, verdict

JOB = """
import pathlib, sys, time
import torch
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(100000):
    (weight.sum() * 1.0).backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
"""


def tensor(**told: dict[str, str]) -> dict[str, object]:
    digests = {step.removeprefix("s"): held for step, held in told.items()}
    return {"name": "w", "kind": "parameter", "placement": "ddp", "dtype": "float32", "digests": digests}


def test_facts_say_what_ranks_began_with() -> None:
    same, apart, none = tensor(s0={"aa": "0,1"}), tensor(s0={"aa": "0", "bb": "1"}, s10={"cc": "0,1"}), tensor()
    assert facts({"tensors": [same, same]}) == [
        "2 parameters of float32, ddp: equal on all ranks that hold them at step 0"
    ]
    assert facts({"tensors": [same, apart, none]}) == [
        "3 parameters of float32, ddp: 1 differ between ranks at step 0, 1 not digested"
    ]
    later = tensor(s10={"aa": "0,1"})
    assert facts({"tensors": [same, later]})[0].endswith("hold them when first read (steps 0 to 10)")
    assert facts({"tensors": [none]}) == ["1 parameter of float32, ddp: not digested"]
    assert facts({"tensors": [none]}, alone=True) == [
        "1 parameter of float32, ddp: not compared: there is one rank alone"
    ]
    assert facts({}) == []


def preflight(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "XDG_STATE_HOME": str(folder)}
    command = [sys.executable, "-m", "diagd.daemon.cli", "preflight", *words]
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.timeout(120)
def test_a_job_is_ended_once_its_steps_are_done(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('of the job')\n" + JOB)
    done = preflight(tmp_path, "--steps", "4", "--json", "--report", "out", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert "diagd: 1 rank, " in done.stderr
    assert "preflight passed" in done.stderr
    assert "exit code" not in done.stderr  # that of the signal by which preflight ended it
    assert json.loads(done.stdout) == json.loads((tmp_path / "out" / "report.json").read_text())
    assert "of the job" in done.stderr.splitlines()


OUTSIDE = """
import time
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
for step in range(100000):
    for _ in range(2):
        (model(torch.randn(3, 4)).square().mean() / 2).backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.4)
"""


@pytest.mark.timeout(120)
def test_parameters_outside_the_optimizer_are_found_in_the_usual_number_of_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OUTSIDE)
    done = preflight(tmp_path, "--", sys.executable, "train.py")
    assert done.returncode == 1, done.stderr
    *_, last = done.stderr.splitlines()
    assert last.startswith("diagd: preflight found 1 fault: ")
    assert last.endswith(" training.dead_parameters")


def test_the_last_line_counts_what_was_found() -> None:
    found = [{"severity": severity, "kind": kind} for severity, kind in
             [("critical", "exit.error"), ("warning", "slow.data"), ("critical", "exit.error")]]  # fmt: skip
    assert verdict(found) == "preflight found 3 faults: 2 x critical exit.error, warning slow.data"
    assert verdict([]) == "preflight passed: nothing of severity warning or above"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("words", [["--", sys.executable, "-c", "raise SystemExit(3)"], ["--", "/nonexistent/x"], []])
def test_a_command_that_does_not_come_to_its_steps_could_not_be_checked(tmp_path: Path, words: list[str]) -> None:
    done = preflight(tmp_path, *words)
    assert done.returncode == 2
    assert ("the command ended with exit code 3" in done.stderr) is (sys.executable in words)
