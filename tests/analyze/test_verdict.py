"""Whether what was found in dumps, logs or a recording counts as a fault, for the exit code."""

import pytest

from diagd.daemon.analyze.verdict import Analysis


@pytest.mark.parametrize(
    ("peak", "state", "faulty"),
    [("critical", "open", True), ("warning", "resolved", True), ("info", "open", False)],
)
def test_a_fault_that_was_over_in_the_end_is_one_and_what_is_only_worth_knowing_is_none(
    peak: str, state: str, faulty: bool
) -> None:
    report = {"incidents": [{"severity": peak, "peak_severity": peak, "state": state}]}
    assert Analysis(report, "1 rank", partial=False).faulty is faulty
    assert not Analysis({"incidents": []}, "1 rank", partial=False).faulty
