"""A job may have a package or module `diagd` of its own: what it imports by that name is then its own."""

from pathlib import Path

import pytest
from tests.probes.jobs import BOOTSTRAP, run

from diagd.probes.namespace import _PACKAGES

# The probes wait for torch where they are in place.
PROBES = "import sys; print(any(type(f).__module__ == 'diagd.probes.namespace' for f in sys.meta_path))"
THEIRS = "import diagd; print(diagd.X)"


def put(folder: Path, name: str, text: str = "X = 'theirs'") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["diagd.py", "diagd/__init__.py"])
def test_it_is_imported_from_the_working_directory(tmp_path: Path, name: str) -> None:
    done = run(f"{THEIRS}; {PROBES}", folder=tmp_path, cwd=put(tmp_path / "job", name))
    assert (done.stdout, done.stderr) == ("theirs\nTrue\n", "")


def test_it_is_imported_from_pythonpath_and_not_before_the_job_asks_for_it(tmp_path: Path) -> None:
    folder = put(tmp_path / "job", "diagd/__init__.py", "print('imported'); X = 'theirs'")
    done = run(f"print('job'); {THEIRS}; {PROBES}", folder=tmp_path, PYTHONPATH=f"{BOOTSTRAP}:{folder}")
    assert (done.stdout, done.stderr) == ("job\nimported\ntheirs\nTrue\n", "")


def test_it_is_imported_from_where_the_script_itself_puts_it(tmp_path: Path) -> None:
    folder = put(tmp_path / "job", "diagd/__init__.py")
    done = run(f"import sys; sys.path.insert(0, {str(folder)!r}); {THEIRS}", folder=tmp_path)
    assert (done.stdout, done.stderr) == ("theirs\n", "")


def test_a_folder_without_an_init_is_part_of_the_name_as_ours_is(tmp_path: Path) -> None:
    folder = put(tmp_path / "job", "diagd/mine.py")
    code = "import diagd.mine, diagd.probes; print(diagd.mine.X, diagd.probes.phase.__name__)"
    assert run(code, folder=tmp_path, cwd=folder).stdout == "theirs phase\n"


def test_phase_is_there_beside_it(tmp_path: Path) -> None:
    folder = put(tmp_path / "job", "diagd/__init__.py")
    done = run(f"{THEIRS}; from diagd.probes import phase; print(phase.__name__)", folder=tmp_path, cwd=folder)
    assert (done.stdout, done.stderr) == ("theirs\nphase\n", "")


def test_a_probe_that_is_put_in_place_later_does_not_import_it(tmp_path: Path) -> None:
    folder = put(tmp_path / "job", "diagd/__init__.py", "print('imported')")
    code = "import torch.utils.data, sys; print('diagd.probes.data' in sys.modules, 'diagd' in sys.modules)"
    assert run(code, folder=tmp_path, cwd=folder).stdout == "True False\n"


def test_where_it_has_our_full_name_the_probes_stay_out_and_say_so(tmp_path: Path) -> None:
    folder = put(put(tmp_path / "job", "diagd/__init__.py"), "diagd/probes/__init__.py")
    done = run(f"import diagd.probes; print(diagd.probes.X); {PROBES}", folder=tmp_path, cwd=folder, RANK="0")
    assert (done.stdout, done.stderr) == ("theirs\nFalse\n", "")
    assert [note.read_text() for note in tmp_path.glob("*.off")] == ["the job has a package diagd.probes of its own\n"]


def test_all_our_packages_are_known_by_name() -> None:
    folders = {path.parent.relative_to(BOOTSTRAP.parents[2]) for path in BOOTSTRAP.parent.rglob("__init__.py")}
    assert {".".join(folder.parts) for folder in folders} == set(_PACKAGES)
