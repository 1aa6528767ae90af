"""torch.compile compiles the same with the probes on: same graphs, same breaks, no new warning."""

import re
from pathlib import Path

from tests.probes.jobs import SCRIPTS, boxes, run

SCRIPT = SCRIPTS / "compiled.py"
TIMES = re.compile(r"\d\d:\d\d:\d\d\.\d+ \d+")


def test_compiled_code_has_the_same_graphs_breaks_and_warnings(tmp_path: Path) -> None:
    plain, watched = run(SCRIPT, folder=None), run(SCRIPT, folder=tmp_path)
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout == plain.stdout
    assert TIMES.sub("", watched.stderr) == TIMES.sub("", plain.stderr)
    (box,) = boxes(tmp_path)
    assert box.live["BACKWARDS"] == 22
    assert box.live["PROBE_ERRORS"] == 0
