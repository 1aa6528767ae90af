"""`diagd ledger`: what it says of two checkpoints, and with which exit code."""

import json
from pathlib import Path

import pytest
import torch

from diagd.daemon.cli.main import main


def write(folder: Path, name: str, **tensors: torch.Tensor) -> str:
    torch.save({key.replace("__", "."): tensor for key, tensor in tensors.items()}, folder / name)
    return str(folder / name)


def test_checkpoints_are_compared_by_a_process_that_has_torch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = write(tmp_path, "a.pt", fc__weight=torch.ones(2, 2), fc__bias=torch.zeros(2))
    right = write(tmp_path, "b.pt", module__fc__weight=torch.ones(2, 2), module__fc__bias=torch.ones(2))
    assert main(["ledger", "compare", left, left]) == 0
    assert capsys.readouterr().out == "2 tensors equal, 0 differ, 0 missing, 0 not compared\n"
    assert main(["ledger", "compare", "--json", left, right]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["different"] == [{"name": "fc.bias", "why": "other content"}]
    assert [one["name"] for one in found["equal"]] == ["fc.weight"]


@pytest.mark.parametrize("name", ["missing.pt", "text.pt", "text.json"])
def test_what_cannot_be_read_ends_with_2_and_says_which(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.pt").write_text("hello")
    (tmp_path / "text.json").write_text("hello")
    assert main(["ledger", "compare", str(tmp_path / name), str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err


def test_a_saved_ledger_needs_no_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"name": "Net.w", "kind": "parameter", "dtype": "float32", "shape": [2], "placement": "ddp"}
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"schema": "diagd.ledger/1", "tensors": [one | {"digests": {"5": {"aa": "0-3"}}}]}))
    assert main(["ledger", "compare", str(path), str(path), "--python", "/nonexistent"]) == 0
    path.write_text(json.dumps({"schema": "diagd.ledger/1", "tensors": []}))
    assert main(["ledger", "compare", str(path), str(path)]) == 2


def ledger(path: Path, step: int, tensors: int = 3, trained: bool = True) -> str:
    """One of a training of which each step changes all but the last tensor; sampled before the first step, too."""
    names = [f"Net.{n}" for n in range(tensors)]
    whole = {"kind": "parameter", "dtype": "float32", "shape": [2], "placement": "ddp"}
    told: list[dict[str, object]] = [
        whole | {"name": name, "trained": trained, "digests": {"0": {"aa": "0,1"}}, "sums": {step: {f"{step}": "0,1"}}}
        for name in names
    ]
    told.append(whole | {"name": "Net.frozen", "trained": False, "digests": {}, "sums": {step: {"f": "0,1"}}})
    path.write_text(json.dumps({"schema": "diagd.ledger/2", "step": step, "tensors": told}))
    return str(path)


def test_ledgers_of_other_steps_are_not_equal_and_what_is_said_of_many_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began, later = ledger(tmp_path / "0.json", 0, 30), ledger(tmp_path / "400.json", 400, 30)
    assert main(["ledger", "compare", began, later]) == 2
    *told, last = capsys.readouterr().out.splitlines()
    assert last == "1 tensor equal (as before the first step and after step 400), 0 differ, 0 missing, 30 not compared"
    assert [line.startswith("not compared  30 tensors: the first tells") for line in told].count(True) == 1
    assert sum("other moments" in line for line in told) == 1
    assert "--step N compares what both held after one step; both have sampled after 0" in told
    assert main(["ledger", "compare", began, began, "--step", "0"]) == 0
    assert "31 tensors equal (as before the first step)" in capsys.readouterr().out
    assert main(["ledger", "compare", began, later, "--step", "0"]) == 2  # of one nothing is told after that step
    unheld, last = capsys.readouterr().out.splitlines()
    assert "Net.frozen: the second does not tell what it held before the first step" in unheld
    assert last.startswith("30 tensors equal (as before the first step), 0 differ")


def test_checkpoints_have_no_steps_to_choose_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "a.pt", w=torch.ones(2))
    assert main(["ledger", "compare", file, file, "--step", "3"]) == 2
    assert "neither" in capsys.readouterr().err


def test_without_a_job_there_is_nothing_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["ledger", "save", str(tmp_path / "x.json"), "--job", "no-such-job"]) == 4
    assert not (tmp_path / "x.json").exists()
