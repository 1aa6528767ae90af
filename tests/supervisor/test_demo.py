"""The whole road on a real job: the demo's bug is found, told, reported, and the job ended."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.live
def test_the_demo_ends_with_a_verdict(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "diagd.daemon.cli",
        "run",
        "--report",
        "out",
        "--hang-after",
        "10",
        "--on-hang",
        "abort",
    ]
    job = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "3", str(ROOT / "deploy/demo/train.py")]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [*command, "--", *job], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 86, done.stderr
    assert "step  30" in done.stdout
    assert "diagd: critical hang.collective_mismatch: " in done.stderr
    assert "Report: out/report.html" in done.stderr.splitlines()[-1]
    report = json.loads((tmp_path / "out/report.json").read_text())
    found = report["incidents"][0]
    assert (found["kind"], found["ranks"], found["waiting_ranks"]) == ("hang.collective_mismatch", [1], [0, 2])
    assert "finish" in [place["function"] for place in found["locations"]]
    assert report["job"]["exit_code"] == 86
    assert (tmp_path / "out/report.html").read_text().rstrip().endswith("</html>")
    assert (tmp_path / "out" / found["dump"] / "summary.txt").is_file()
