"""Real ranks that silently disagree, and real ranks that hold what they should under each kind of wrapper."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.live.job import LiveJob
from tests.live.judge import flaws

from diagd.probes.box.ledger import TURN

JOB = Path(__file__).parent / "jobs" / "dv_replicas.py"
HEALED = JOB.with_name("dv_healed.py")
RANKS = 3
CHANGED_AT = 21
LIMIT_S = 180.0

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def run(*arguments: str, script: Path = JOB, ranks: int = RANKS) -> dict[str, Any]:
    """The job's last report."""
    program = str(Path(sys.executable).with_name("torchrun"))
    with LiveJob([program, "--standalone", "--nproc-per-node", str(ranks), script.name, *arguments], [script]) as job:
        assert job.finish(LIMIT_S) == 0, job.tail()
        report = job.report()
        assert "done" in job.stdout
    assert report is not None
    assert flaws(report, ranks) == []
    return report


def incidents(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = [incident for incident in report["incidents"] if incident["kind"].startswith("divergence.")]
    assert len({incident["kind"] for incident in found}) == len(found), found
    return {incident["kind"]: incident for incident in found}


def test_each_disagreement_is_named_with_its_ranks_its_tensors_and_its_step() -> None:
    found = incidents(run(str(CHANGED_AT)))
    assert set(found) == {"divergence.parameter", "divergence.frozen", "divergence.buffer"}
    changed = found["divergence.parameter"]
    assert (changed["ranks"], changed["names"], changed["severity"]) == ([1], ["Reader.outer.weight"], "critical")
    assert CHANGED_AT <= changed["step"] <= CHANGED_AT + TURN
    frozen = found["divergence.frozen"]
    assert (frozen["ranks"], frozen["step"]) == ([2], 0)
    assert {name.partition(".")[0] for name in frozen["names"]} == {"Teacher"}
    assert set(found["divergence.buffer"]["names"]) == {"Normed.norm.running_mean", "Normed.norm.running_var"}
    assert all(incident["state"] == "open" for incident in found.values())


def test_of_what_is_equal_or_differs_by_design_no_alarm_is_raised() -> None:
    found = incidents(run())
    # Each rank's statistics cannot be told from such as all should share: worth knowing, and no more.
    assert {kind: (one["severity"], one["names"]) for kind, one in found.items()} == {
        "divergence.buffer": ("info", ["Statistics.seen"])
    }


def test_what_a_broadcast_makes_equal_again_is_over_and_files_that_are_never_closed_are_not() -> None:
    report = run(script=HEALED, ranks=2)
    found = {incident["kind"]: incident for incident in report["incidents"]}
    assert set(found) == {"divergence.parameter", "memory.host_leak"}
    healed, files = found["divergence.parameter"], found["memory.host_leak"]
    assert (healed["state"], healed["names"], healed["peak_severity"]) == (
        "resolved",
        ["Reader.outer.weight"],
        "critical",
    )
    assert "; equal again since " in healed["summary"]
    assert (files["state"], files["ranks"], files["names"][0]) == ("open", [0], "fds")
    assert "RLIMIT_NOFILE" in files["summary"]
