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


def test_without_a_job_there_is_nothing_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["ledger", "save", str(tmp_path / "x.json"), "--job", "no-such-job"]) == 4
    assert not (tmp_path / "x.json").exists()
