"""Autocast that keeps casts of weights which have changed since: found in real losses' graphs, and nowhere else."""

import json
from pathlib import Path

from tests.probes.jobs import SCRIPTS, boxes, run


def test_old_casts_are_found_where_the_loss_stands_still_and_nowhere_else(tmp_path: Path) -> None:
    done = run(SCRIPTS / "autocast_regions.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    trained = json.loads(done.stdout)
    assert [what for what, seen in trained.items() if not seen["moved"]] == [
        "around the loop", "around the loop, and each forward pass",
    ]  # fmt: skip
    for what, seen in trained.items():
        assert seen["found"] == (not seen["moved"] or what == "around passes of weights that move"), what
    never = ("around each forward pass", "around each step", "none")
    assert [trained[what]["looks"] for what in never] == [0, 0, 0]  # graphs that were walked
    (box,) = boxes(tmp_path)
    assert box.live["PROBE_ERRORS"] == 0
