"""Whether a report says of a drill what it must."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagd.daemon.ranks import rank_ranges
from diagd.daemon.selftest.drills import Drill

_SEVERITIES = ("info", "warning", "critical")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Right or wrong, and what was said."""

    right: bool
    said: str


def judge(drill: Drill, report: Json | None, exit_code: int | None) -> Judgement | None:
    """Judge what was said until now; None where the verdict may still come.

    Args:
        drill: What was tried.
        report: As in report.json; None where there is none yet.
        exit_code: The job's; None while it runs.
    """
    incidents = report["incidents"] if report is not None else []
    if not drill.fault:
        return _of_clean(drill, report, exit_code, incidents)
    found = [i for i in incidents if _is_meant(drill, i)]
    false = [i for i in incidents if i["severity"] == "critical" and i["state"] == "open" and i not in found]
    if found and false:
        return Judgement(False, _said([*found, *false]))
    if found:
        return Judgement(True, _said(found))
    if exit_code is not None:
        return Judgement(False, _said(incidents) or "nothing")
    return None


def expected(drill: Drill) -> str:
    """What must be said."""
    return f"{drill.kind}, {rank_ranges(drill.culprits, named=True)}" if drill.fault else "nothing"


def _of_clean(drill: Drill, report: Json | None, exit_code: int | None, incidents: Sequence[Json]) -> Judgement | None:
    if incidents:
        return Judgement(False, _said(incidents))
    if exit_code is None:
        return None
    steps = [rank["step"] or 0 for rank in report["ranks"]] if report is not None else []
    if exit_code != 0:
        return Judgement(False, f"nothing, and the job ended with exit code {exit_code}")
    if steps != [drill.steps] * drill.ranks:
        return Judgement(False, f"nothing, but saw steps {steps} of {drill.ranks} ranks with {drill.steps} each")
    return Judgement(True, f"nothing, and saw all {drill.steps} steps of {drill.ranks} ranks")


def _is_meant(drill: Drill, incident: Json) -> bool:
    return (
        incident["kind"] == drill.kind
        and tuple(incident["ranks"]) == drill.culprits
        and _SEVERITIES.index(incident["severity"]) >= _SEVERITIES.index(drill.severity)
    )


def _said(incidents: Sequence[Json]) -> str:
    return "; ".join(f"{i['kind']}, {rank_ranges(i['ranks'], named=True)}" for i in incidents)
