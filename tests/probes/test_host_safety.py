"""Whatever state the probes are in, the script runs, says and returns the same."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.probes.jobs import BOOTSTRAP, ROOT, SCRIPTS, boxes, environment, run

BASE_PYTHON: str = getattr(sys, "_base_executable", sys.executable)  # outside any virtual environment: no diagd
LONE = SCRIPTS / "lone.py"


@pytest.fixture(scope="module")
def plain() -> subprocess.CompletedProcess[str]:
    """The run without diagd that all others are compared with."""
    return run(LONE, "exit", folder=None)


def same(one: subprocess.CompletedProcess[str], other: subprocess.CompletedProcess[str]) -> None:
    assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)


@pytest.mark.parametrize("probes", ["all", "none", "steps,no-such-probe"])
def test_output_exit_code_and_loss_are_the_same(
    tmp_path: Path, plain: subprocess.CompletedProcess[str], probes: str
) -> None:
    same(run(LONE, "exit", folder=tmp_path, DIAGD_PROBES=probes), plain)
    assert plain.stdout.startswith("loss ")
    assert plain.stderr == "enough\n"


BREAK_ALL = """
import sys
from diagd.probes import phases, sites, counting
def broken(*args, **kwargs):
    raise RuntimeError("broken on purpose")
phases.enter = phases.now_in = phases.begin_collective = sites.site = broken
counting.StepCounter.stepped = broken
"""


def test_probes_that_raise_are_switched_off_and_the_script_goes_on(
    tmp_path: Path, plain: subprocess.CompletedProcess[str]
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(BREAK_ALL)
    path = os.pathsep.join([str(BOOTSTRAP), str(tmp_path / "site")])
    same(run(LONE, "exit", folder=tmp_path, PYTHONPATH=path), plain)
    (box,) = boxes(tmp_path)
    assert box.live["PROBES_OFF"]
    assert "probe steps is off: RuntimeError: broken on purpose" in box.identity["notes"]


def test_a_run_directory_that_cannot_be_written_falls_back_to_the_temporary_one(
    tmp_path: Path, plain: subprocess.CompletedProcess[str]
) -> None:
    (tmp_path / "tmp").mkdir()
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    same(run(LONE, "exit", folder=blocked, TMPDIR=str(tmp_path / "tmp")), plain)
    assert len(boxes(tmp_path / "tmp" / f"diagd-{os.getuid()}" / "job")) == 1


def test_with_no_place_for_a_box_the_reason_is_left_behind(
    tmp_path: Path, plain: subprocess.CompletedProcess[str]
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(
        "import os\ndef full(*args): raise OSError(28, 'No space left on device')\nos.posix_fallocate = full\n"
    )
    path = os.pathsep.join([str(BOOTSTRAP), str(tmp_path / "site")])
    same(run(LONE, "exit", folder=tmp_path, PYTHONPATH=path, TMPDIR=str(tmp_path)), plain)
    assert boxes(tmp_path) == []
    (note,) = tmp_path.glob("*.off")
    assert "No space left on device" in note.read_text()


def small(code: str, folder: Path | None, *flags: str, **extra: str) -> tuple[int, str, str]:
    process = run(code, folder=folder, flags=flags, variables=extra)
    return process.returncode, process.stdout, process.stderr


LOADED = "import sys; print('diagd.probes.start' in sys.modules); raise SystemExit(7)"


def test_without_a_run_directory_nothing_is_loaded() -> None:
    assert small(LOADED, None, PYTHONPATH=str(BOOTSTRAP)) == (7, "False\n", "")


def test_with_one_the_probes_are_loaded(tmp_path: Path) -> None:
    assert small(LOADED, tmp_path) == (7, "True\n", "")


def test_disable_wins(tmp_path: Path) -> None:
    assert small(LOADED, tmp_path, DIAGD_DISABLE="1") == (7, "False\n", "")


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_an_isolated_python_is_left_alone(tmp_path: Path, flag: str) -> None:
    assert small(LOADED, tmp_path, flag) == (7, "False\n", "")


def test_a_missing_diagd_is_no_reason_not_to_run(tmp_path: Path) -> None:
    lonely = tmp_path / "a/b/c/bootstrap"
    lonely.mkdir(parents=True)
    (lonely / "sitecustomize.py").write_text((BOOTSTRAP / "sitecustomize.py").read_text())
    process = run(LOADED, folder=tmp_path, python=BASE_PYTHON, PYTHONPATH=str(lonely), RANK="0")
    assert (process.returncode, process.stdout, process.stderr) == (7, "False\n", "")
    assert "ModuleNotFoundError" in "".join(note.read_text() for note in tmp_path.glob("*.off"))


def test_a_package_of_the_users_called_diagd_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "diagd").mkdir()
    (tmp_path / "diagd/__init__.py").write_text("MINE = 1\n")
    path = os.pathsep.join([str(BOOTSTRAP), str(tmp_path)])
    assert small("import diagd; print(diagd.MINE)", tmp_path, PYTHONPATH=path) == (0, "1\n", "")


def test_the_probes_beside_the_bootstrap_win_over_an_installed_diagd(tmp_path: Path) -> None:
    other = tmp_path / "diagd/probes"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("OLD = True\n")
    code = "import diagd.probes; print(diagd.probes.__file__)"
    path = os.pathsep.join([str(BOOTSTRAP), str(tmp_path)])
    assert small(code, tmp_path, PYTHONPATH=path) == (0, f"{ROOT}/probes/diagd/probes/__init__.py\n", "")


def test_the_users_own_sitecustomize_runs_once_and_is_the_one_that_is_seen(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\nVALUE = 4\n")
    path = os.pathsep.join([str(BOOTSTRAP), str(tmp_path)])
    code = "import sitecustomize, sys; print(sitecustomize.VALUE, 'diagd.probes.start' in sys.modules)"
    assert small(code, tmp_path, PYTHONPATH=path) == (0, "mine\n4 True\n", "")


def test_an_error_in_the_users_own_sitecustomize_shows_as_ever(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import no_such_module_anywhere\n")
    with_diagd = small(LOADED, tmp_path, PYTHONPATH=os.pathsep.join([str(BOOTSTRAP), str(tmp_path)]))
    without = small(LOADED, None, PYTHONPATH=str(tmp_path))
    assert with_diagd == (7, "True\n", without[2])
    assert "no_such_module_anywhere" in without[2]


def test_children_inherit_the_probes(tmp_path: Path) -> None:
    code = f"import subprocess, sys; raise SystemExit(subprocess.call([sys.executable, '-c', {LOADED!r}]))"
    assert small(code, tmp_path) == (7, "True\n", "")


def test_the_bootstrap_is_written_for_any_python() -> None:
    text = (BOOTSTRAP / "sitecustomize.py").read_text(encoding="ascii")
    tree = ast.parse(text, feature_version=(3, 4))
    imports = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    assert imports == ["os", "sys"]
    new = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Nonlocal, ast.Starred)
    assert not [node for node in ast.walk(tree) if isinstance(node, new)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert not [f for f in functions if f.returns or f.args.kwonlyargs or any(a.annotation for a in f.args.args)]


def test_the_phase_can_be_told_with_and_without_diagd(tmp_path: Path) -> None:
    code = "from diagd.probes import phase\nwith phase('checkpoint'): print('saved')"
    assert small(code, tmp_path) == (0, "saved\n", "")
    assert small(code, tmp_path, DIAGD_DISABLE="1") == (0, "saved\n", "")


def test_a_python_that_starts_costs_little(tmp_path: Path) -> None:
    code = "import sys; print(sorted({'typing', 'enum', 're', 'threading', 'json'} & set(sys.modules)))"
    process = subprocess.run(
        [sys.executable, "-S", "-c", "import sitecustomize\n" + code], env=environment(tmp_path),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert process.stdout == "[]\n"
