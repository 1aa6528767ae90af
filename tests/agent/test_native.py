"""Native stacks: which program gives them, and what is said when none does."""

from pathlib import Path

import pytest

from diagd.daemon.agent import native, pyspy
from diagd.daemon.agent.pyspy import NoStack


def programs(monkeypatch: pytest.MonkeyPatch, folder: Path, **scripts: str) -> None:
    """Let these shell scripts stand for the programs, and let there be no others."""
    paths = {}
    for name, script in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        paths[name.replace("_", "-")] = str(path)
    monkeypatch.setattr(pyspy, "program", lambda name="py-spy": paths.get(name))


def test_the_quicker_program_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(monkeypatch, tmp_path, pystack='echo "pystack $*"', py_spy="echo py-spy")
    assert native.text(7, 10) == "pystack --no-color remote --native 7\n"


def test_where_it_fails_the_other_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(monkeypatch, tmp_path, pystack="exit 1", py_spy='echo "$*"')
    assert native.text(7, 10) == "dump --native --pid 7\n"


def test_why_there_is_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(monkeypatch, tmp_path, py_spy='echo "Error: Permission denied (os error 13)" >&2; exit 1')
    with pytest.raises(NoStack, match="CAP_SYS_PTRACE"):
        native.text(7, 10)
    programs(monkeypatch, tmp_path)
    with pytest.raises(NoStack, match="neither"):
        native.text(7, 10)


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(monkeypatch, tmp_path, pystack="exec sleep 60", py_spy="echo never asked")
    with pytest.raises(NoStack, match=r"within 0.1 s"):
        native.text(7, 0.1)
