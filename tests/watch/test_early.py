"""Of several processes that failed before any rank came up, the one that ended the job is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from diagd.daemon.report.early import EARLY
from diagd.daemon.watch.early import early_end


def died(folder: Path, number: int, **changes: Any) -> None:
    note = {"pid": number, "parent": 1, "rank": "", "error": "KeyError", "place": "", "at_ns": number}
    (folder / f"{number}.died").write_text(json.dumps(note | {"message": f"of {number}"} | changes))


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({}, "process 20 had failed with KeyError: of 20"),
        ({10: {}}, "process 20 had failed with KeyError: of 20"),  # a shell went on after it
        ({30: {}}, "process 30 had failed with KeyError: of 30"),
        ({30: {"pid": 1}}, "process 20 had failed with KeyError: of 20"),  # started the one that failed, and repeats it
        ({30: {"rank": "1", "place": "a.py:3"}, 40: {"rank": "0"}}, "rank 1 had failed with KeyError: of 30 at a.py:3"),
    ],
)
def test_the_one_that_ended_the_job(tmp_path: Path, others: dict[int, dict[str, Any]], told: str) -> None:
    died(tmp_path, 20)
    for pid, changes in others.items():
        died(tmp_path, pid, **changes)
    assert early_end(tmp_path) == f"{EARLY}{told}"


def test_notes_that_are_cut_off_or_absent_tell_nothing(tmp_path: Path) -> None:
    (tmp_path / "1.died").write_text("{")
    (tmp_path / "2.died").write_text("[]")
    assert early_end(tmp_path) == ""
