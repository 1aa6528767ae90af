"""Real ranks that train on the same input: said while they run, with the step from which on they do."""

import sys
from pathlib import Path

import pytest
from tests.live.job import LiveJob
from tests.live.judge import flaws

JOB = Path(__file__).parent / "jobs" / "da_fsdp2_one_seed.py"
RANKS = 2
LIMIT_S = 180.0

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def test_ranks_that_draw_with_one_seed_are_named() -> None:
    program = str(Path(sys.executable).with_name("torchrun"))
    with LiveJob([program, "--standalone", "--nproc-per-node", str(RANKS), JOB.name], [JOB]) as job:
        assert job.finish(LIMIT_S) == 0, job.tail()
        report = job.report()
    assert report is not None
    assert flaws(report, RANKS) == []
    (found,) = [incident for incident in report["incidents"] if incident["kind"].startswith("divergence.")]
    assert (found["kind"], found["ranks"], found["severity"]) == ("divergence.data", [0, 1], "warning")
    assert (found["names"], found["state"]) == (["batch"], "open")
    assert found["step"] == 1
