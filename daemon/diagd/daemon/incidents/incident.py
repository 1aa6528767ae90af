"""An incident, and its form in report.json."""

from dataclasses import dataclass
from typing import Any

from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Location, Severity
from diagd.daemon.state.model import Frame


@dataclass(slots=True)
class Incident:
    """One fault of the job, from its first report to its resolution."""

    id: str
    kind: str
    severity: Severity
    opened_s: float
    ranks: tuple[int, ...]
    summary: str
    causes: tuple[Cause, ...]
    fixes: tuple[dict[str, str], ...]  # one for each cause, from the catalog
    attempt: int = 0
    step: int | None = None
    waiting_ranks: tuple[int, ...] = ()
    waits: str = ""
    group: str | None = None
    op_name: str = ""
    op_seq: int = 0
    names: tuple[str, ...] = ()
    locations: tuple[Location, ...] = ()
    peak_severity: Severity = Severity.INFO
    resolved_s: float | None = None
    fingerprint: str = ""
    key: str = ""
    goes_on: bool = False
    explains: tuple[str, ...] = ()  # kinds that follow from it
    times_out_s: float | None = None
    strikes: int = 0
    dump: str | None = None
    healed: bool = False  # over because what differed was seen to be equal again
    restored: bool = False  # open in the store of a watcher before this one, which has not found it itself yet

    @property
    def is_open(self) -> bool:
        """Whether the fault still stands."""
        return self.resolved_s is None

    @property
    def order(self) -> tuple[int, bool, float]:
        """Most severe first, of these what stands still, then oldest first."""
        return self.severity.order, not self.is_open, self.opened_s

    def as_json(self) -> dict[str, Any]:
        """As report.schema.json has it."""
        op = {"name": self.op_name, **({"seq": self.op_seq} if self.op_seq > 0 else {})} if self.op_name else None
        return {
            "id": self.id,
            "kind": self.kind,
            "severity": self.severity.value,
            "state": "open" if self.is_open else "resolved",
            "opened_at": self.opened_s,
            "step": self.step,
            "ranks": sorted(self.ranks),
            "waiting_ranks": sorted(self.waiting_ranks),
            "group": self.group,
            "op": op,
            "names": list(self.names[:20]),
            "summary": self.summary[:300],
            "locations": [_location(place) for place in self.locations],
            "causes": [_cause(c, fix) for c, fix in zip(self.causes, self.fixes, strict=True)],
            "peak_severity": self.peak_severity.value,
            "resolved_at": self.resolved_s,
            "attempt": self.attempt,
            "fingerprint": self.fingerprint,
            "strikes": self.strikes,
            "dump": self.dump,
            **({"waits": self.waits} if self.waits else {}),
        }


def _location(place: Location) -> dict[str, Any]:
    frame = place.frame
    said = {"rank": place.rank, "function": frame.function, "file": frame.file, "line": frame.line}
    return {**said, "left": True} if place.left else said


def _cause(cause: Cause, fix: dict[str, str]) -> dict[str, Any]:
    return {
        "cause": cause.text,
        "confidence": round(min(cause.confidence, cause.basis.ceiling), 2),
        "basis": cause.basis.value,
        "evidence": [{"what": e.what, "rank": e.rank, "step": e.step, "source": e.source} for e in cause.evidence],
        "fix": fix,
    }


def incident_from_json(said: dict[str, Any]) -> Incident:
    """The incident of a report; the inverse of `Incident.as_json`, but for what a report leaves out (its key)."""
    op = said.get("op") or {}
    return Incident(
        id=said["id"],
        kind=said["kind"],
        severity=Severity(said["severity"]),
        opened_s=said["opened_at"],
        ranks=tuple(said["ranks"]),
        summary=said["summary"],
        causes=tuple(_cause_from(c) for c in said["causes"]),
        fixes=tuple(c["fix"] for c in said["causes"]),
        attempt=said["attempt"],
        step=said["step"],
        waiting_ranks=tuple(said["waiting_ranks"]),
        waits=said.get("waits", ""),
        group=said["group"],
        op_name=op.get("name", ""),
        op_seq=op.get("seq", 0),
        names=tuple(said["names"]),
        locations=tuple(
            Location(place["rank"], Frame(place["function"], place["file"], place["line"]), place.get("left", False))
            for place in said["locations"]
        ),
        peak_severity=Severity(said["peak_severity"]),
        resolved_s=said["resolved_at"],
        fingerprint=said["fingerprint"],
        strikes=said.get("strikes", 0),
        dump=said.get("dump"),
    )


def _cause_from(said: dict[str, Any]) -> Cause:
    evidence = tuple(Evidence(e["what"], e["source"], e.get("rank"), e.get("step")) for e in said["evidence"])
    return Cause("", said["cause"], said["confidence"], Basis(said["basis"]), evidence)
