"""Being told of an import, without a trace in the module or its loader."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from diagd.probes import hook


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "made_for_hooks.py").write_text("VALUE = 1\n")
    (tmp_path / "fails_for_hooks.py").write_text("raise ImportError('no')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("made_for_hooks", "fails_for_hooks"):
        sys.modules.pop(name, None)
        hook._waiting.pop(name, None)
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not hook._Finder]


def test_it_is_told_right_after_the_module_was_executed() -> None:
    told: list[int] = []
    hook.after_import("made_for_hooks", lambda module: told.append(module.VALUE))
    assert told == []
    module = importlib.import_module("made_for_hooks")
    assert told == [1]
    assert module.__loader__ is not None
    assert "exec_module" not in vars(module.__loader__)
    importlib.reload(module)
    assert told == [1]


def test_a_module_that_is_already_there_is_told_of_at_once() -> None:
    importlib.import_module("made_for_hooks")
    told: list[ModuleType] = []
    hook.after_import("made_for_hooks", told.append)
    assert told == [sys.modules["made_for_hooks"]]


def test_all_who_asked_are_told() -> None:
    told: list[str] = []
    hook.after_import("made_for_hooks", lambda _: told.append("a"))
    hook.after_import("made_for_hooks", lambda _: told.append("b"))
    importlib.import_module("made_for_hooks")
    assert told == ["a", "b"]


def test_a_module_that_fails_fails_as_ever() -> None:
    told: list[ModuleType] = []
    hook.after_import("fails_for_hooks", told.append)
    with pytest.raises(ImportError, match="no"):
        importlib.import_module("fails_for_hooks")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("missing_for_hooks")
    assert told == []
