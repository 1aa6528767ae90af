"""Waiting for a ledger of one step: what is said meanwhile, and why it comes to nothing."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pytest

from diagd.daemon.cli import jobs, ledger, ledger_save
from diagd.daemon.cli.main import main
from diagd.daemon.errors import DiagdError

ASKED = {"number": 1, "phase": "asked", "step": 40, "ranks": 2, "answered": 0, "why": "", "at": 20}
WANTED = ASKED | {"phase": "wanted", "step": None, "ranks": 0, "why": "a rank is gone"}
TENSORS = [{"name": "Net.w", "sums": {"40": {"aa": "0"}}}, {"name": "Net.v", "why": "parts are missing"}]
DOCUMENT = {"schema": "diagd.ledger/2", "job": "j", "step": 40, "not_told": [], "tensors": TENSORS}


class Aggregator:
    """Answers as one after the other says, the last one again and again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.paths: list[str] = []
        monkeypatch.setattr(ledger_save, "fetch", self.fetch)
        monkeypatch.setattr(jobs, "fetch", self.fetch)
        monkeypatch.setattr(jobs, "find_job", lambda name: SimpleNamespace(info={"http": "here:1"}))
        monkeypatch.setattr(ledger_save, "LOOK_S", 0.0)

    def fetch(self, address: str, path: str, timeout_s: float = 3.0, method: str = "GET") -> Any:
        self.paths.append(path)
        if path == "/api/v1/ledger":
            return DOCUMENT
        if method == "POST":
            self.asked.append(path)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_it_waits_until_all_ranks_have_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aggregator = Aggregator(monkeypatch, WANTED, WANTED, ASKED, ASKED | {"phase": "done", "answered": 2})
    assert main(["ledger", "save", str(tmp_path / "l.json"), "--step", "40"]) == 0
    assert aggregator.asked == ["/api/v1/ledger/save?step=40"]
    assert json.loads((tmp_path / "l.json").read_text()) == DOCUMENT
    said = capsys.readouterr()
    assert "2 tensors of job j in" in said.out
    assert "after step 40, 1 of them without what they hold (Net.v: parts are missing)" in said.out
    assert said.err.splitlines() == ["diagd: 0 of 2 ranks have told what they hold after step 40; the job has made 20"]


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ((WANTED,), "within 0.001 s the ranks could not be asked yet: a rank is gone"),
        ((ASKED,), "within 0.001 s 0 of 2 ranks have told what they hold after step 40; the job has made 20"),
        ((ASKED, ASKED | {"phase": "failed", "why": "step 40 is over"}), "step 40 is over"),
        ((ASKED, ASKED | {"number": 2}), "somebody has asked for the ledger of another step meanwhile"),
    ],
)
def test_where_no_step_comes_what_was_sampled_is_written_and_that_is_said(
    answers: tuple[dict[str, Any], ...], why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    Aggregator(monkeypatch, *answers)
    assert main(["ledger", "save", str(tmp_path / "l.json"), "--limit", "0.001"]) == 3
    assert (tmp_path / "l.json").exists()
    assert f"not of one step: {why}; it holds what was sampled before" in capsys.readouterr().out


def test_an_older_diagd_that_knows_no_such_request_is_said_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise HTTPError("http://here", 501, "Unsupported method", None, None)  # type: ignore[arg-type]

    Aggregator(monkeypatch, ASKED)
    monkeypatch.setattr(ledger_save, "fetch", refuse)
    assert main(["ledger", "save", str(tmp_path / "l.json")]) == 3
    assert "knows no such request (501)" in capsys.readouterr().out


def test_what_ranks_began_with_is_not_asked_for_but_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = DOCUMENT | {"number": 0, "phase": "done", "why": "", "step": 0}
    aggregator = Aggregator(monkeypatch, began)
    assert main(["ledger", "save", str(tmp_path / "l.json"), "--step", "0"]) == 0
    assert (aggregator.asked, set(aggregator.paths)) == ([], {"/api/v1/ledger/start"})
    assert "before the first step" in capsys.readouterr().out
    why = "0 of 2 ranks have told what they began with"
    Aggregator(monkeypatch, began | {"phase": "failed", "why": why, "step": None})
    assert main(["ledger", "save", str(tmp_path / "l.json"), "--step", "0"]) == 3
    assert f"{why}: it was not started with `diagd run --ledger-at-start`" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_refused_before_any_rank_is_asked(tmp_path: Path) -> None:
    with pytest.raises(DiagdError, match="cannot be written"):
        ledger._check_writable(tmp_path / "none" / "x.json")
    ledger._check_writable(tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()
    (tmp_path / "y.json").write_text("kept")
    ledger._check_writable(tmp_path / "y.json")
    assert (tmp_path / "y.json").read_text() == "kept"
