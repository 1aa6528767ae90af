"""An incident in the report's form, whatever it is about."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detectors.states import Job, at, job

from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.incidents.book import IncidentBook
from diagd.daemon.incidents.catalog import KINDS, entry
from diagd.daemon.incidents.incident import Incident, incident_from_json
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Ending, Frame

SCHEMA = json.loads((Path(__file__).parents[1] / "contract" / "report.schema.json").read_text(encoding="utf-8"))
INCIDENT = jsonschema.Draft202012Validator({"$ref": "#/$defs/incident", "$defs": SCHEMA["$defs"]})


def opened(finding: Finding) -> Incident:
    """The incident of a finding, seen for long enough to be believed."""
    book, state = IncidentBook(), JobState()
    for now_s in (100.0, 101.0):
        state.tick(now_s)
        book.update([finding], state)
    return book.incidents[0]


def finding(kind: str = "hang.rank_blocked", **more: object) -> Finding:
    cause = Cause("blocked", "it is stuck", 0.9, Basis.OBSERVATION, (Evidence("in load", "stack", 2, 7),))
    fields = {"severity": Severity.CRITICAL, "ranks": (2,), "summary": "rank 2 is stuck.", "causes": (cause,), **more}
    return Finding(kind=kind, **fields)  # type: ignore[arg-type]


def faults() -> dict[str, Job]:
    """A job for each kind that these detectors tell."""
    two: dict[str, tuple[int, ...]] = {"a": (0, 1), "b": (0, 1)}
    return {
        "hang.rank_missing": job(2).waits(0, seq=5).outside(1).train(1),
        "hang.collective_mismatch": job(2).waits(0, seq=5).waits(1, "BARRIER", seq=5),
        "hang.group_cycle": job(2, groups=two).waits(0, seq=5, group="a").waits(1, seq=5, group="b"),
        "hang.p2p_unmatched": job(2).receives(0, peer=1).receives(1, peer=0),
        "hang.rank_blocked": job(2, 5).waits(0, seq=5).outside(1),
        "hang.data_starved": job(2, 5).waits(0, seq=5).starves(1, at("__getitem__")),
        "hang.rank_stopped": job(2).waits(0, seq=5).outside(1).stopped(1),
        "hang.store_wait": job(2).wants_key(0, "plan/3").waits(1, seq=5),
        "hang.all_arrived": job(2, 5).waits(0, seq=5).waits(1, seq=5),
        "exit.killed": job(2).waits(0, seq=5).dies(1, signal="SIGKILL"),
        "exit.error": job(2).waits(0, seq=5).raises(1),
        "exit.early": job(2).waits(0, seq=5).dies(1, code=0),
        "slow.straggler": job(2).waits(0, seq=5).outside(1).works(1, "cpu"),
        "slow.host": job(2).waits(0, seq=5).outside(1).works(1, "io"),
        "slow.data": job(2).waits(0, seq=5).starves(1, at("__getitem__")).works(1, "children"),
    }


@pytest.mark.parametrize("kind", sorted(faults()))
def test_each_kind_is_told_in_the_reports_form(kind: str) -> None:
    made = faults()[kind]
    book = IncidentBook()
    for _ in range(24):
        book.update(made.passes(0.5).find(), made.state)
    said = json.loads(json.dumps(book.incidents[0].as_json()))
    INCIDENT.validate(said)
    assert said["kind"] == kind
    assert said["ranks"]
    assert said["locations"] or kind in ("exit.killed", "exit.early", "hang.rank_stopped", "hang.rank_missing")
    assert said["causes"][0]["fix"]["action"]


def test_a_report_read_back_says_the_same() -> None:
    before = opened(finding(locations=(Location(2, at("load")),), names=("worker",), op_name="ALLREDUCE", op_seq=5))
    assert incident_from_json(before.as_json()).as_json() == before.as_json()


def test_confidence_never_exceeds_what_its_basis_allows() -> None:
    causes = tuple(Cause("blocked", "why", 0.99, basis, (Evidence("seen", "probe"),)) for basis in Basis)
    said = opened(finding(causes=causes)).as_json()
    assert [c["confidence"] for c in said["causes"]] == [0.95, 0.85, 0.7, 0.7]


def test_a_fault_has_the_same_fingerprint_in_another_run() -> None:
    place = (Location(2, at("load", line=41)),)
    here = opened(finding(locations=place))
    elsewhere = opened(finding(ranks=(5,), locations=(Location(5, at("load", "/other/train.py", 43)),)))
    assert here.fingerprint == elsewhere.fingerprint
    assert here.fingerprint != opened(finding(locations=(Location(2, at("save")),))).fingerprint
    assert here.fingerprint != opened(finding("hang.data_starved", locations=place)).fingerprint


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400), st.text(max_size=400), st.text(max_size=400), st.integers(0, 5))
def test_a_summary_is_short_whatever_things_are_called(name: str, file: str, text: str, which: int) -> None:
    frame = Frame(name, file, 3)
    made = [
        lambda: job(2, 3).waits(0, seq=5, site=frame).stack(1, frame),
        lambda: job(2).waits(0, seq=5, site=frame).waits(1, "BARRIER", seq=5, site=frame),
        lambda: job(2).wants_key(0, text, site=frame).waits(1, seq=5, site=frame),
        lambda: job(2).waits(0, seq=5).dies(1, code=1, ending=Ending("exception", name, text, 1, (frame,))),
        lambda: job(2).receives(0, peer=1, site=frame).receives(1, peer=0, site=frame),
        lambda: job(2).creates_group(0, 1, detail=text, site=frame).stack(1, frame),
    ][which]()
    found = made.passes(6).find()
    assert found
    for one in found:
        assert 0 < len(one.summary) <= 300
        INCIDENT.validate(json.loads(json.dumps(opened(one).as_json())))


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 5000), min_size=1, max_size=800))
def test_a_summary_of_many_ranks_stays_short(ranks: set[int]) -> None:
    crowd = tuple(sorted(ranks))
    said = opened(finding(ranks=crowd, waiting_ranks=crowd, summary=f"ranks {crowd}")).as_json()
    INCIDENT.validate(said)


# --- the catalog


def test_every_kind_that_is_told_has_its_page() -> None:
    assert set(faults()) <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_says_what_how_and_what_next(kind: str) -> None:
    page = entry(kind)
    assert page.kind == kind
    assert page.title
    assert page.symptom
    assert page.mechanism
    assert page.causes
    for fix in page.causes.values():
        assert fix.action
        assert fix.expected
        assert fix.verify
        assert fix.if_not


@pytest.mark.parametrize("kind", sorted(faults()))
def test_the_cause_that_is_told_has_a_fix_of_its_own(kind: str) -> None:
    found = next(f for f in faults()[kind].passes(12).find() if f.kind == kind)
    assert {cause.key for cause in found.causes} <= set(entry(kind).causes)


def test_a_cause_without_a_fix_of_its_own_gets_the_pages_first() -> None:
    page = entry("hang.rank_blocked")
    assert page.fix("no such cause") == next(iter(page.causes.values()))
