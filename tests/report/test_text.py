"""Verdicts and summaries as a person reads them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.reports import incident, report

from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Severity
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.report.early import EARLY, NO_RANK
from diagd.daemon.report.text import _incidents, summary_lines, verdict_lines


def test_a_verdict_says_what_where_who_waits_why_and_what_to_do() -> None:
    assert verdict_lines(incident()) == [
        "diagd: critical hang.data_starved: rank 1 waits for its data in _read (train.py:32); "
        "ranks 0,2 wait for it in ALLREDUCE #51",
        "       where     rank 1 in _read, train.py:32 ← __getitem__, train.py:28",
        "       waiting   ranks 0,2 in ALLREDUCE #51 of group default_pg",
        "       because   reading a file does not return "
        "[the same stack in 4 looks (stack); it sleeps in openat (kernel)]",
        "       do        Check the file server behind this path.",
        "       more      diagd explain hang.data_starved · dump: dumps/i1",
    ]


def test_a_resolved_incident_says_so() -> None:
    assert verdict_lines(incident(state="resolved", severity="warning"))[0].startswith("diagd: resolved hang.data_st")


def test_those_who_wait_are_not_said_to_be_in_the_culprits_operation() -> None:
    assert "       waiting   ranks 0,2" in verdict_lines(incident(kind="hang.collective_mismatch"))


def test_ranks_at_the_same_place_are_told_once() -> None:
    places = [{"rank": r, "function": "f", "file": "a.py", "line": 1} for r in (0, 1, 2, 4)]
    assert "       where     ranks 0-2,4 in f, a.py:1" in verdict_lines(incident(locations=places))


def test_places_that_do_not_call_each_other_are_not_shown_as_a_stack() -> None:
    where = verdict_lines(incident(kind="slow.straggler"))[1]
    assert where == "       where     rank 1 in _read, train.py:32 and __getitem__, train.py:28"


def test_a_place_that_a_rank_has_gone_on_from_did_not_call_the_next_one() -> None:
    names = [("snapshot", True), ("forward", False), ("main", False)]
    places = [{"rank": 0, "function": f, "file": "a.py", "line": n, "left": gone} for n, (f, gone) in enumerate(names)]
    where = verdict_lines(incident(locations=places))[1]
    assert where == "       where     rank 0 in snapshot, a.py:0, then in forward, a.py:1 ← main, a.py:2"


def test_colour_is_only_for_terminals() -> None:
    assert "\033" not in "".join(verdict_lines(incident()))
    assert "\033[1;31mcritical" in verdict_lines(incident(), colour=True)[0]


def test_an_incident_needs_no_json() -> None:
    cause = Cause("k", "why", 0.9, Basis.OBSERVATION, (Evidence("seen", "stack"),))
    fix = {"action": "act", "expected": "", "verify": "", "if_not": ""}
    made = Incident("i", "hang.rank_blocked", Severity.CRITICAL, 1.0, (1,), "rank 1 is stuck", (cause,), (fix,))
    lines = verdict_lines(made)
    assert lines[0] == "diagd: critical hang.rank_blocked: rank 1 is stuck"
    assert len(lines) <= 6


def test_what_was_not_judged_is_not_said_to_be_without_incident() -> None:
    lines = summary_lines(report(judged=False, notes=["the aggregator a:1 was never reached; nothing was judged"]))
    assert lines[0].endswith("; not judged.")
    assert lines[1] == "Not watched: the aggregator a:1 was never reached; nothing was judged."


def test_what_is_too_long_ends_at_a_word_and_keeps_its_brackets() -> None:
    long = incident()
    long["causes"][0]["evidence"][0]["what"] = "evidence " * 60
    because = next(line for line in verdict_lines(long) if "because" in line)
    assert because.endswith(" evidence… (stack); it sleeps in openat (kernel)]")
    long["causes"][0]["cause"] = "reason " * 60
    because = next(line for line in verdict_lines(long) if "because" in line)
    assert "reason reason… [evidence" in because
    assert len(because) <= 600


_TEXT = st.text(max_size=400)


@given(_TEXT, _TEXT, st.lists(st.integers(0, 5000), max_size=200), _TEXT, _TEXT)
def test_whatever_the_job_says_a_verdict_stays_a_few_printable_lines(
    summary: str, function: str, ranks: list[int], cause: str, action: str
) -> None:
    place = {"rank": 1, "function": function, "file": function, "line": 3}
    made: dict[str, Any] = incident(summary=summary[:300], locations=[place], waiting_ranks=sorted(set(ranks)))
    made["causes"][0]["cause"] = cause
    made["causes"][0]["fix"]["action"] = action
    lines = verdict_lines(made)
    assert len(lines) <= 6
    assert all(line.isprintable() and len(line) <= 350 for line in lines)


@given(st.text(max_size=2000))
def test_a_summary_has_at_most_300_characters(summary: str) -> None:
    cause = Cause("k", "why", 0.9, Basis.OBSERVATION, (Evidence("seen", "stack"),))
    made = Incident("i", "hang.rank_blocked", Severity.CRITICAL, 1.0, (1,), summary, (cause,), ({"action": ""},))
    assert len(made.as_json()["summary"]) <= 300


def test_a_summary_of_a_good_job() -> None:
    assert summary_lines(report()) == ["3 ranks, 25 steps; no incident."]


def test_a_summary_of_a_bad_job_names_the_worst() -> None:
    assert summary_lines(report(incident())) == [
        "3 ranks, 25 steps; 1 incident (1 critical), first hang.data_starved (rank 1)."
    ]


def test_a_summary_says_whether_the_worst_is_over() -> None:
    (line,) = summary_lines(report(incident(state="resolved")))
    assert line.endswith("first hang.data_starved (rank 1), resolved since.")


@pytest.mark.parametrize(("state", "said"), [("resolved", "resolved since"), ("open", "to the job's end")])
def test_what_was_slow_until_the_job_ended_has_not_become_quicker(state: str, said: str) -> None:
    slow = {"kind": "slow.straggler", "ranks": [1], "peak_severity": "warning", "state": state,
            "resolved_at": 9.0 if state == "resolved" else None, "attempt": 0}  # fmt: skip
    assert _incidents([slow], 0, 20.0).endswith(f"first slow.straggler (rank 1), {said}")


def test_a_summary_names_what_was_before_a_restart() -> None:
    later, earlier = incident(attempt=1), incident(attempt=0, kind="exit.error", ranks=[2], state="resolved")
    said = report(later, earlier, earlier)
    said["job"]["attempt"] = 1
    (line,) = summary_lines(said)
    assert line == (
        "3 ranks, 25 steps, restarted; 3 incidents (3 critical), first hang.data_starved (rank 1);"
        " before a restart exit.error (rank 2)."
    )
    for rank in said["ranks"]:
        rank["step"] = None
    assert summary_lines(said)[0].startswith("3 ranks, no training step seen since the restart; ")


def test_a_command_that_failed_without_a_verdict_is_said_to_have() -> None:
    said = report()
    said["job"]["exit_code"] = 3
    assert summary_lines(said)[0].endswith("; no incident, and the command ended with exit code 3.")


@pytest.mark.parametrize(
    ("code", "notes", "told"),
    [
        (3, [], " before the command ended with exit code 3; why, its own last lines say."),
        (130, [], " before the command ended with exit code 130."),
        (
            1,
            [f"{EARLY}rank 0 failed with A: b"],
            " before the command ended with exit code 1; rank 0 failed with A: b.",
        ),
    ],
)
def test_a_command_that_failed_before_any_rank_came_up_is_no_job_without_incident(
    code: int, notes: list[str], told: str
) -> None:
    said = report(ranks=0, notes=notes)
    said["job"]["exit_code"] = code
    assert summary_lines(said) == [f"{NO_RANK}{told}"]


def test_a_summary_says_what_was_not_watched_and_when_nothing_was_seen() -> None:
    assert summary_lines(report(ranks=0)) == [
        "No rank was seen (no torch.distributed, no optimizer step); no incident."
    ]
    assert summary_lines(report(ranks=0, notes=["no ptrace"])) == [
        "No rank was watched; no incident.",
        "Not watched: no ptrace.",
    ]


def test_a_drill_is_not_mistaken_for_a_real_fault() -> None:
    notes = ["drill: --inject kill:rank=2,step=9", "no ptrace", "drill: injected kill at step 9 (rank 2)"]
    assert summary_lines(report(incident(), notes=notes))[1:] == [
        "Drill, no real fault: --inject kill:rank=2,step=9; injected kill at step 9 (rank 2).",
        "Not watched: no ptrace.",
    ]
    assert "Drill that has done nothing so far" in summary_lines(report(notes=notes[:2]))[1]
    later = ["drill: --inject kill:rank=2,step=9, before a restart: after it a fault does not act again"]
    assert summary_lines(report(notes=later))[1] == "Drill, no real fault: " + later[0].removeprefix("drill: ") + "."
    notes[0] += " slow:rank=9,step=4"
    assert "slow:rank=9,step=4 did not act so far" in summary_lines(report(notes=notes))[1]


def test_the_probe_and_the_report_mean_the_same_by_a_drill() -> None:
    from diagd.daemon.report import drill
    from diagd.probes import inject

    assert (drill.DRILL, drill.AGAIN) == (inject.DRILL, inject.AGAIN)


def test_a_wait_that_was_over_before_it_was_said_is_not_told_of_at_the_end() -> None:
    short = incident(state="resolved", severity="warning", peak_severity="warning", opened_at=100.0, resolved_at=106.0)
    assert summary_lines(report(short), said_after_s=18.0)[0].startswith("3 ranks, 25 steps; no incident")
    for more in ({"resolved_at": 130.0}, {"peak_severity": "critical"}, {"kind": "numerics.nonfinite"}):
        assert "1 incident" in summary_lines(report({**short, **more}), said_after_s=18.0)[0]


def test_ranks_that_became_slow_as_the_job_ended_are_not_told_of_at_the_end() -> None:
    slow = incident(kind="slow.straggler", severity="warning", peak_severity="warning", opened_at=100.0)
    for opened_s, said in ((97.0, "no incident"), (94.0, "1 incident")):
        told = report({**slow, "opened_at": opened_s})
        told["job"] |= {"ended_at": 100.0, "exit_code": 0}
        assert said in summary_lines(told, said_after_s=18.0, slow_after_s=5.0)[0]
    told["job"]["exit_code"] = 1
    told["incidents"][0]["opened_at"] = 97.0
    assert "1 incident" in summary_lines(told, said_after_s=18.0, slow_after_s=5.0)[0]


def test_what_is_left_out_of_a_summary_is_counted() -> None:
    short = incident(state="resolved", severity="warning", peak_severity="warning", opened_at=100.0, resolved_at=106.0)
    said = summary_lines(report(short, incident()), said_after_s=18.0)[0]
    assert said.endswith("first hang.data_starved (rank 1), but for 1 short wait that nobody was told of.")
