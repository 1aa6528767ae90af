"""What lies on PYTHONPATH or in the working directory is the job's, and no part of diagd."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import diagd_command

DIAGD = str(Path(sys.executable).with_name("diagd"))
ROOT = Path(__file__).resolve().parents[2]
QUIET = ["diagd: No rank was seen (no torch.distributed, no optimizer step); no incident."]
FOREIGN = ("click.py", "grpc/__init__.py", "google/__init__.py", "numpy.py", "jinja2.py", "diagd/__init__.py")
PROGRAMS = {"py-spy", "pystack"}  # which are run, not imported


def foreign(folder: Path) -> Path:
    for name in FOREIGN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"raise RuntimeError({name!r})\n", encoding="utf-8")
    return folder


def diagd(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_STATE_HOME": str(cwd / "state"), **environ}
    return subprocess.run([DIAGD, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_other_versions_on_pythonpath_disturb_neither_the_command_nor_the_watch(tmp_path: Path) -> None:
    theirs = f"{foreign(tmp_path / 'theirs')}:/elsewhere"
    done = diagd("run", "--", "sh", "-c", "echo $PYTHONPATH", cwd=tmp_path, PYTHONPATH=theirs)
    assert (done.returncode, done.stdout.partition(":")[2]) == (0, f"{theirs}\n")
    assert done.stderr.splitlines() == [
        "diagd: No rank was seen (no torch.distributed, no optimizer step); no incident."
    ]


def test_other_versions_in_the_working_directory_disturb_nothing(tmp_path: Path) -> None:
    done = diagd("run", "--", "true", cwd=foreign(tmp_path))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "diagd: No rank was seen (no torch.distributed, no optimizer step); no incident."
    ]


def test_a_diagd_that_is_on_pythonpath_alone_is_found_there(tmp_path: Path) -> None:
    folders = [str(foreign(tmp_path)), *filter(None, sys.path)]
    # Without site, as where nothing is installed for this Python.
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(Path(diagd_command.__file__)), "version"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_all_that_diagd_requires_is_looked_for() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    names = {requirement.partition(">")[0].strip() for requirement in required} - PROGRAMS
    modules = {name.partition(".")[0] for name in diagd_command.NEEDED}
    found = packages_distributions()
    assert names <= {dist.lower() for module in modules for dist in found.get(module, ())}
