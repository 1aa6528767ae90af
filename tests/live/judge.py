"""Holds a report against what is known to be wrong with the job."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
from tests.live.cases import FAMILIES, Case

SCHEMA = Path(__file__).resolve().parents[1] / "contract/report.schema.json"
SLOW = "slow."
SEVERITIES = ("critical", "warning", "info")
FIRST_LOCATIONS = 3  # of each culprit
MIN_STEPS = 5


@dataclass(slots=True)
class Verdict:
    """What a report is worth. None: was not asked for."""

    detected: bool | None = None  # there is an incident at all, above info
    kind: bool | None = None  # one of the right names
    best: bool | None = None  # the best of them
    culprits: bool | None = None
    place: bool | None = None
    got: str = ""  # the top incident, in a word
    top: tuple[str, str] | None = None  # its id and kind
    false_alarms: int = 0  # on a control
    faults: list[str] = field(default_factory=list)  # what falls short, in words; empty: right

    @property
    def right(self) -> bool:
        """Nothing falls short."""
        return not self.faults


def judge(
    case: Case, report: Mapping[str, Any] | None, exit_code: int | None, ever_critical: Sequence[str] = ()
) -> Verdict:
    """Judge the last report of a case.

    Args:
        exit_code: Of `diagd run`; None where it ran past its limit.
        ever_critical: Kinds that were critical in some report along the way.
    """
    verdict = Verdict()
    verdict.faults += ["ran past its limit"] if exit_code is None else []
    verdict.faults += flaws(report, case.nproc)
    if report is None or not isinstance(report.get("incidents"), list):
        if case.kinds:
            verdict.detected = verdict.kind = verdict.best = False
        return verdict
    if case.control:
        _judge_control(case, report, exit_code, ever_critical, verdict)
    else:
        _judge_fault(case, report, verdict)
    return verdict


def flaws(report: Mapping[str, Any] | None, nproc: int) -> list[str]:
    """What is wrong with the report as such."""
    if report is None:
        return ["no report"]
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    found = [f"schema: {error.json_path}: {error.message[:120]}" for error in validator.iter_errors(report)][:3]
    known = sorted(rank.get("rank", -1) for rank in report.get("ranks", []))
    if known != list(range(nproc)):
        found.append(f"the report knows ranks {known} of {nproc}")
    return found


def by_weight(incidents: Sequence[Mapping[str, Any]], *, of_speed: bool = False) -> list[Mapping[str, Any]]:
    """Most severe first, then oldest; what is only slow is passed over where the case is not `of_speed`."""
    kept = [i for i in incidents if of_speed or i["severity"] == "critical" or not i["kind"].startswith(SLOW)]
    return sorted(kept, key=lambda i: (SEVERITIES.index(i["severity"]), i["opened_at"]))


def places(incident: Mapping[str, Any]) -> list[str]:
    """Functions and file:line of the first locations of each culprit."""
    seen: dict[int, int] = {}
    found = []
    for location in incident["locations"]:
        rank = location["rank"]
        seen[rank] = seen.get(rank, 0) + 1
        if rank in incident["ranks"] and seen[rank] <= FIRST_LOCATIONS:
            found += [location["function"].rpartition(".")[2], f"{Path(location['file']).name}:{location['line']}"]
    return found


def shown(incidents: Sequence[Mapping[str, Any]]) -> str:
    """Incidents in a few words."""
    return ", ".join(f"{i['kind']}{i['ranks']}" for i in incidents[:3]) or "none"


def _judge_fault(case: Case, report: Mapping[str, Any], verdict: Verdict) -> None:
    incidents = by_weight(report["incidents"], of_speed=any(kind.startswith(SLOW) for kind in case.kinds))
    verdict.got = shown(incidents)
    verdict.detected = any(i["severity"] != "info" for i in incidents)
    top = incidents[0] if incidents else None
    verdict.kind = top is not None and top["kind"] in case.kinds
    verdict.best = top is not None and top["kind"] == case.kinds[0]
    if top is not None:
        verdict.top = (top["id"], top["kind"])
        _judge_culprits(case, top, verdict)
        verdict.faults += [f"does not say {words!r}" for words in case.says if words not in _said(top)]
    if not verdict.kind:
        verdict.faults.append(f"kind: {verdict.got}")
    families = {kind.partition(".")[0] for kind in case.kinds}
    other = [i for i in incidents[1:] if i["severity"] == "critical" and i["kind"].partition(".")[0] not in families]
    if other:
        verdict.faults.append(f"unrelated: {shown(other)}")


def _said(incident: Mapping[str, Any]) -> str:
    causes = incident["causes"][:1]
    return " ".join(
        [incident["summary"], *(c["cause"] for c in causes), *(e["what"] for c in causes for e in c["evidence"])]
    )


def _judge_culprits(case: Case, top: Mapping[str, Any], verdict: Verdict) -> None:
    if case.ranks:
        verdict.culprits = tuple(sorted(top["ranks"])) in case.ranks
        if not verdict.culprits:
            verdict.faults.append(f"culprits: {top['ranks']}")
    if case.where:
        named = places(top)
        verdict.place = any(place in case.where for place in named)
        if not verdict.place:
            verdict.faults.append(f"place: {named[:6]}")


def _judge_control(
    case: Case, report: Mapping[str, Any], exit_code: int | None, ever_critical: Sequence[str], verdict: Verdict
) -> None:
    if exit_code not in (0, None):
        verdict.faults.append(f"exit code {exit_code}")
    if any((rank.get("step") or 0) <= MIN_STEPS for rank in report["ranks"]):
        verdict.faults.append("steps were not seen")
    alarms = [i for i in report["incidents"] if _is_false_alarm(i) or (case.quiet and i["severity"] != "info")]
    gone = set(ever_critical) - {i["kind"] for i in alarms}
    verdict.got = shown(alarms)
    verdict.false_alarms = len(alarms) + len(gone)
    verdict.faults += [f"false alarm: {i['kind']} {i['ranks']} {i['severity']}, {i['summary']}" for i in alarms]
    verdict.faults += [f"false alarm: {kind} was critical for a while" for kind in sorted(gone)]


def _is_false_alarm(incident: Mapping[str, Any]) -> bool:
    """Critical, now or ever; or a hang, a death or slowness above a warning that has gone by."""
    if "critical" in (incident["severity"], incident["peak_severity"]):
        return True
    if not str(incident["kind"]).startswith((*FAMILIES, SLOW)):
        return False
    return bool(incident["severity"] == "warning" and incident["state"] != "resolved")
