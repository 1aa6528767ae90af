"""`diagd selftest` as a person meets it: on jobs that are stand-ins, and once on real ones."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.selftest.stand_in import trainer_at
from tests.supervisor.harness import until

SHM = Path(f"/dev/shm/diagd-{os.getuid()}")


class Selftest:
    """The command in a folder of its own, which is also its temporary one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before = self._run_dirs()
        self._environ = {**os.environ, "TMPDIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "diagd.daemon.cli", "selftest", *words],
            env=self._environ, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=150)
        return process.returncode, out, err

    def left(self) -> list[str]:
        """What it has left behind; of processes the fixture for all tests knows."""
        return sorted([*(path.name for path in self.folder.glob("diagd-selftest-*")), *self._run_dirs() - self._before])

    @staticmethod
    def _run_dirs() -> set[str]:
        folders = (SHM, Path(tempfile.gettempdir()) / SHM.name)
        return {path.name for folder in folders if folder.is_dir() for path in folder.glob("selftest-*")}


@pytest.fixture
def selftest(tmp_path: Path) -> Selftest:
    return Selftest(tmp_path)


def test_a_job_that_ends_without_a_verdict_is_wrong_and_says_what_it_printed(selftest: Selftest) -> None:
    path = trainer_at(selftest.folder, "echo the job says so; exit 3")
    code, out, err = selftest.run("--only", "kill", "--python", str(path))
    lines = out.splitlines()
    assert (code, err) == (1, "")
    assert lines[0] == f"Python 3.12.1 with torch 9.9 ({path})"
    assert lines[1].split() == ["wrong", "kill", "said", "nothing;", "expected", "exit.killed,", "rank", "1"]
    assert "        the job says so" in lines
    assert "diagd run --hang-after 5 --inject kill:rank=1,step=40 -- " in lines[-2]
    assert lines[-1].startswith("0 of 1 right, in ")
    assert selftest.left() == []


def test_json_is_all_that_is_printed(selftest: Selftest) -> None:
    path = trainer_at(selftest.folder, "exit 3")
    code, out, err = selftest.run("--only", "clean", "--python", str(path), "--json")
    made = json.loads(out)
    (drill,) = made["drills"]
    assert (code, err, made["schema"], made["right"]) == (1, "", "diagd.selftest/1", False)
    assert (drill["name"], drill["fault"], drill["right"], drill["verdict_seconds"]) == ("clean", None, False, None)
    assert drill["said"] == "nothing, and the job ended with exit code 3"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_leaves_nothing_behind_when_it_is_interrupted(selftest: Selftest, number: int, code: int) -> None:
    up = selftest.folder / "up"
    path = trainer_at(selftest.folder, f"echo up >> {up}; trap '' TERM; sleep 1000 & sleep 1000")
    process = selftest.start("--only", "hang,stop", "--python", str(path))
    until(lambda: up.exists() and len(up.read_text().split()) >= min(2, len(os.sched_getaffinity(0))))
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert selftest.left() == []


def test_wrong_names_are_told_the_right_ones(selftest: Selftest) -> None:
    for names in ("hagn", "hang,", ""):
        code, _, err = selftest.run("--only", names)
        assert code == 2
        assert "is none of clean, slow, hang" in err


@pytest.mark.live
def test_real_faults_are_found(selftest: Selftest) -> None:
    code, out, err = selftest.run("--only", "exit,gil", "--python", sys.executable, "--json")
    made = json.loads(out)
    assert {drill["name"]: drill["said"] for drill in made["drills"]} == {
        "gil": "hang.rank_blocked, rank 1",
        "exit": "exit.early, rank 1",
    }, out + err
    assert code == 0
    assert all(drill["verdict_seconds"] is not None for drill in made["drills"])
    assert selftest.left() == []
