"""A rank's own memory after each step, and what of its script's is named where that grows: in a real training."""

import json
from pathlib import Path

from tests.probes.jobs import SCRIPTS, boxes, line_of, run

from diagd.daemon.agent.signals import SignalReader
from diagd.daemon.state.signals import SignalBook

SCRIPT = SCRIPTS / "leaks.py"


def test_what_a_training_keeps_is_named_with_the_line_that_keeps_it(tmp_path: Path) -> None:
    # With a fixed threshold, what is let go of between two leaks goes back to the system at once.
    done = run(SCRIPT, folder=tmp_path, MALLOC_MMAP_THRESHOLD_="65536")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    seen = {how: (said.get("path"), said.get("kind"), said.get("graph")) for how, said in found.items()}
    assert seen == {
        "in_a_list": ("history.losses", "list", True),
        "in_a_sum": ("total", "graph", True),
        "by_hooks": ("outputs['first']", "list", False),
        "nowhere": (found["nowhere"].get("path"), None, None),
        "in_the_dataset": ("dataset.samples", "list", False),
    }
    assert not found["nowhere"].get("path")
    marks = {"in_a_list": "list", "in_a_sum": "sum", "by_hooks": "hook", "in_the_dataset": "dataset"}
    for how, mark in marks.items():
        assert (found[how]["verdict"], found[how]["places"][0][2]) == ("kept", line_of(SCRIPT, mark)), how
    (box,) = boxes(tmp_path)
    assert box.live["PROBE_ERRORS"] == 0
    assert _floors(tmp_path)[-1] > 100 * 1024 * 1024


def _floors(folder: Path) -> list[float]:
    (path,) = folder.glob("*.signals")
    book, news = SignalBook(), SignalReader(path, 0, 1).news()
    assert news is not None
    book.apply([news])
    series = book.series(0, "memory/floor")
    assert series is not None
    return [float(value) for value in series.values]


def test_a_script_that_descends_by_itself_has_steps_and_its_leak_is_named(tmp_path: Path) -> None:
    done = run(SCRIPTS / "own_descent.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (box,) = boxes(tmp_path)
    assert (box.live["STEP"], box.live["PROBE_ERRORS"]) == (60, 0)
    assert ["self.average[0]", "graph", True] in json.loads(done.stdout)["holders"]
    assert len(_floors(tmp_path)) > 20
