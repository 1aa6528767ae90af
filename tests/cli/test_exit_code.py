"""The job's exit code is the job's, whatever becomes of diagd's own words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DIAGD = [str(Path(sys.executable).with_name("diagd"))]


@pytest.mark.parametrize(
    ("code", "variables"),
    [(0, {}), (7, {}), (7, {"PYTHONUNBUFFERED": "1"}), (7, {"PYTHONPATH": "/"})],
    ids=str,
)
def test_a_full_disk_behind_stderr_does_not_change_the_exit_code(code: int, variables: dict[str, str]) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*DIAGD, "run", "--", "sh", "-c", f"exit {code}"], stderr=full, env=plain | variables, check=False
        )
    assert done.returncode == code


def test_a_closed_stdout_does_not_change_the_exit_code() -> None:
    done = subprocess.run(["sh", "-c", f"{DIAGD[0]} run --quiet -- sh -c 'exit 7' >&-"], check=False)
    assert done.returncode == 7


def test_a_file_named_as_a_standard_module_does_not_blind_the_watch(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("X = 1\n", encoding="utf-8")
    done = subprocess.run(
        [*DIAGD, "run", "--", "sleep", "1"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "unwatched" in done.stderr, "ended" in done.stderr) == (0, False, False)
