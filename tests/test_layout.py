"""The shape of the tree: the packaging rests on it, and the import rules that import-linter cannot state."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("daemon", "probes", "proto", "cuda_ext")
PROBES = ROOT / "probes/diagd/probes"


@pytest.mark.parametrize("room", ROOMS)
def test_diagd_is_a_namespace_that_no_root_owns(room: str) -> None:
    assert not (ROOT / room / "diagd/__init__.py").exists()
    assert not (ROOT / room / "__init__.py").exists()
    assert (ROOT / room / "diagd" / room / "__init__.py").is_file()


@pytest.mark.parametrize("room", ROOMS)
def test_each_portion_says_that_it_is_typed(room: str) -> None:
    assert (ROOT / room / "diagd" / room / "py.typed").is_file()


@pytest.mark.parametrize("room", ROOMS)
def test_a_root_holds_nothing_else_that_can_be_imported(room: str) -> None:
    found = {path.parent.relative_to(ROOT / room).as_posix() for path in (ROOT / room).glob("*/**/*.py")}
    assert {name.partition("/")[0] for name in found} == {"diagd"}
    assert [path.name for path in (ROOT / room / "diagd").iterdir() if not path.name.startswith((".", "__"))] == [room]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def outside(folder: Path, allowed: tuple[str, ...]) -> list[str]:
    """Return `file: module` for each import in folder that is neither of the standard library nor allowed."""
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in imported(path)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed)
    ]


def test_a_rank_needs_the_standard_library_and_torch_alone() -> None:
    assert outside(PROBES, ("torch", "diagd.probes", "diagd.cuda_ext")) == []


def test_device_code_needs_the_standard_library_and_torch_alone() -> None:
    assert outside(ROOT / "cuda_ext/diagd", ("torch", "diagd.cuda_ext")) == []


def test_the_box_needs_the_standard_library_alone() -> None:
    assert outside(PROBES / "box", ("diagd.probes.box",)) == []


def test_the_supervisor_needs_the_standard_library_alone() -> None:
    assert outside(ROOT / "daemon/diagd/daemon/supervisor", ("diagd.daemon.supervisor",)) == []


def test_importing_the_probes_or_the_daemon_does_not_import_torch() -> None:
    code = "import sys, diagd.probes, diagd.daemon; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
