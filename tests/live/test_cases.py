"""Cases of frameworks that development does not install are told as not run, never left out in silence."""

import json
from pathlib import Path

from tests.bench import faults
from tests.live.cases import Case

NOWHERE = "no_such_framework"


def case(name: str, *needs: str) -> Case:
    return Case(name=name, script=Path("train.py"), nproc=2, needs=needs)


def test_a_case_that_lacks_something_is_told_with_what() -> None:
    assert faults.lacking([case("a", "torch"), case("b", NOWHERE), case("c")]) == {"b": NOWHERE}


def test_what_was_not_run_stands_in_both_files(tmp_path: Path) -> None:
    faults.write(tmp_path / "faults.json", {}, {}, {"b": NOWHERE})
    assert json.loads((tmp_path / "faults.json").read_text())["not_run"] == {"b": NOWHERE}
    assert f"Not run:\n\n- b: {NOWHERE} is not installed" in (tmp_path / "faults.md").read_text()


def test_the_deepspeed_launcher_starts_one_process_a_rank() -> None:
    made = Case(name="d", script=Path("train.py"), nproc=2, launcher="deepspeed", args=("1",))
    assert made.command()[1:] == ["--num_accelerators", "2", "train.py", "1"]
