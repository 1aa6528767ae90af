"""Every probe has its file, its line and its test."""

import importlib
from pathlib import Path

import pytest

from diagd.probes.registry import PROBES

FOLDER = Path(importlib.import_module("diagd.probes").__file__ or "").parent


@pytest.mark.parametrize("spec", PROBES, ids=lambda spec: spec.name)
def test_a_probe_is_a_module_that_begins_and_ends(spec: object) -> None:
    module = importlib.import_module(f"diagd.probes.{spec.name}")  # type: ignore[attr-defined]
    assert callable(module.remove)
    assert callable(getattr(module, "install" if spec.modules else "begin"))  # type: ignore[attr-defined]


def test_every_file_that_can_be_installed_is_registered() -> None:
    found = {path.stem for path in FOLDER.glob("*.py") if "\ndef remove(" in path.read_text(encoding="utf-8")}
    assert found == {spec.name for spec in PROBES}
