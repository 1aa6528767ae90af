"""Averages of weights beside real trainings: how much of each update arrives."""

from pathlib import Path

import pytest
from tests.probes.jobs import SCRIPTS, boxes, run
from tests.probes.test_half_precision import signals


@pytest.mark.parametrize(("kind", "written", "lost"), [
    ("slow", True, True), ("quick", True, False), ("reference", False, True), ("float32", None, None),
])  # fmt: skip
def test_what_is_written_into_a_copy_in_half_precision_arrives_or_not(
    kind: str, written: bool | None, lost: bool | None, tmp_path: Path
) -> None:
    done = run(SCRIPTS / "averages.py", kind, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (box,) = boxes(tmp_path)
    assert box.live["PROBE_ERRORS"] == 0, box.identity
    told, facts = signals(tmp_path)
    if written is None:
        assert "average/lost" not in told
        return
    assert [step for step, _ in told["average/lost"]] == [24, 48, 72, 96]
    assert all((share > 0.5) == lost for _, share in told["average/lost"][1:])
    assert all((count >= 24) == written for _, count in told["average/written"][1:])
    assert facts["average/dtype"][1] == "bfloat16"
    assert facts["average/names"][1].startswith("Net (copy).enc.weight,")
