"""A ledger of a real job against checkpoints and another job's, over a change of the number of ranks."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.live.job import DIAGD, LiveJob

JOB = Path(__file__).parent / "jobs" / "ld_saves.py"
STEP = 400
LIMIT_S = 120.0
TORCHRUN = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node", "2"]

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def diagd(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([DIAGD, *map(str, words)], capture_output=True, text=True, timeout=LIMIT_S)


def compared(first: Path, second: Path) -> tuple[int, dict[str, Any]]:
    done = diagd("ledger", "compare", "--json", first, second)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    return done.returncode, {key: found[key] for key in ("kind", "different", "missing", "not_compared", "equal")}


def save(folder: Path, words: Sequence[str], *begin: Path) -> Path:
    """Train, and save the ledger of the step after which the job saves; the folder with both."""
    folder.mkdir()
    with LiveJob([*words, JOB.name, str(STEP), *map(str, begin)], [JOB], flags=["--ledger-at-start"]) as job:
        job.until_said("stepped", LIMIT_S)
        done = diagd("ledger", "save", folder / "began.json", "--job", job.job_id, "--step", "0")
        assert done.returncode == 0, done.stdout + done.stderr
        done = diagd("ledger", "save", folder / "job.json", "--job", job.job_id, "--step", str(STEP))
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"after step {STEP}" in done.stdout
        job.until_said("saved", LIMIT_S)
        (job.folder / "stop").touch()
        assert job.finish(LIMIT_S) == 0, job.tail()
        report = job.report()
        assert report is not None
        assert [one["kind"] for one in report["incidents"] if one["severity"] != "info"] == []
        for name in (f"dcp-{STEP}", f"full-{STEP}.pt"):
            source = job.folder / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("alone") / "job", [sys.executable])


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory, alone: Path) -> Path:
    """What the one process has saved, loaded by two ranks that share it."""
    return save(tmp_path_factory.mktemp("split") / "job", TORCHRUN, alone / f"full-{STEP}.pt")


@pytest.fixture(params=["alone", "split"])
def job(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


PARAMETERS = {f"Net.{name}" for name in ("body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias", "head.weight")}


STATES = {f"{name}.{key}" for name in PARAMETERS for key in ("exp_avg", "exp_avg_sq", "step")}


@pytest.mark.parametrize("checkpoint", [f"dcp-{STEP}", f"full-{STEP}.pt"])
def test_a_jobs_ledger_and_its_checkpoint_are_equal_split_or_not(job: Path, checkpoint: str) -> None:
    code, found = compared(job / "job.json", job / checkpoint)
    assert (code, found["kind"], found["different"], found["missing"], found["not_compared"]) == (0, None, [], [], [])
    assert {one["name"] for one in found["equal"]} == PARAMETERS | STATES
    assert {one["why"] for one in found["equal"]} == {f"as after step {STEP}"}


@pytest.mark.parametrize("held", ["job.json", f"full-{STEP}.pt", f"dcp-{STEP}"])
def test_what_two_ranks_have_loaded_is_what_one_process_held(held: str, alone: Path, split: Path) -> None:
    code, found = compared(split / "began.json", alone / held)
    assert (code, found["kind"], found["different"], found["missing"], found["not_compared"]) == (0, None, [], [], [])
    assert {one["name"] for one in found["equal"]} == PARAMETERS | STATES


def test_what_a_job_holds_later_is_of_another_moment_and_does_not_differ(split: Path) -> None:
    done = diagd("ledger", "compare", "--json", split / "began.json", split / f"full-{STEP}.pt")
    found = json.loads(done.stdout)
    assert (done.returncode, found["kind"], found["different"], found["equal"]) == (2, None, [], [])
    assert {one["name"] for one in found["not_compared"]} == PARAMETERS | STATES


def test_a_changed_element_is_found_and_named_with_the_part_that_it_lies_in(split: Path, tmp_path: Path) -> None:
    content = torch.load(split / f"full-{STEP}.pt")
    content["model"]["body.0.weight"].view(torch.int32)[9, 4] ^= 1  # the least bit
    torch.save(content, tmp_path / "changed.pt")
    code, found = compared(split / "job.json", tmp_path / "changed.pt")
    assert (code, found["kind"], found["missing"]) == (1, "divergence.checkpoint", [])
    assert found["different"] == [{"name": "Net.body.0.weight", "why": f"after step {STEP}, in rows 7 to 12 (rank 1)"}]
    text = diagd("ledger", "compare", split / "job.json", tmp_path / "changed.pt").stdout.splitlines()
    assert text[-1].startswith("divergence.checkpoint: 19 tensors equal")
    _, found = compared(split / f"full-{STEP}.pt", tmp_path / "changed.pt")
    assert found["different"] == [{"name": "model.body.0.weight", "why": "other content, in row 9"}]
