"""Each dump has a folder of its own, and one that is interrupted says so."""

from pathlib import Path
from typing import Any, NoReturn

import click
import pytest

from diagd.daemon.cli.dump import _folder
from diagd.daemon.cli.main import cli, main
from diagd.daemon.errors import DiagdError


def test_two_dumps_at_once_do_not_write_into_one_folder(tmp_path: Path) -> None:
    assert _folder(tmp_path / "deep/out", "job") == tmp_path / "deep/out"
    with pytest.raises(DiagdError, match="gets another dump just now") as refused:
        _folder(tmp_path / "deep/out", "job")
    assert refused.value.exit_code == 2
    (tmp_path / "deep/out/summary.txt").write_text("")
    with pytest.raises(DiagdError, match="holds a dump already"):
        _folder(tmp_path / "deep/out", "job")


def test_dumps_of_the_same_second_have_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "100000")
    found = [_folder(None, "a b/c").name for _ in range(3)]
    assert found == [f"diagd-dump-a_b_c-100000{end}" for end in ("", "-2", "-3")]


def test_a_folder_that_cannot_be_made_is_said_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiagdError, match="Not a directory"):
        _folder(tmp_path / "file/out", "job")


def test_who_interrupts_hears_of_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: Any, **__: Any) -> NoReturn:
        raise click.Abort

    monkeypatch.setattr(cli, "main", interrupted)
    assert main(["dump"]) == 130
    assert capsys.readouterr().err == "diagd: interrupted\n"
