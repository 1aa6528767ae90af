"""An incident takes what its newest finding says, and keeps what it once was when it is over."""

import hashlib

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.incidents.catalog import entry
from diagd.daemon.incidents.incident import Incident


def fill(incident: Incident, finding: Finding) -> None:
    """Say what the finding says."""
    page = entry(finding.kind)
    incident.kind, incident.severity, incident.key = finding.kind, finding.severity, finding.key
    incident.peak_severity = min(incident.peak_severity, finding.severity, key=lambda severity: severity.order)
    incident.restored = False
    incident.ranks, incident.waiting_ranks, incident.waits = finding.ranks, finding.waiting_ranks, finding.waits
    incident.summary, incident.causes = finding.summary, finding.causes
    incident.fixes = tuple(page.fix(cause.key).as_json() for cause in finding.causes)
    incident.group, incident.op_name, incident.op_seq = finding.group, finding.op_name, finding.op_seq
    incident.names, incident.goes_on, incident.explains = finding.names[:20], finding.goes_on, finding.explains
    incident.times_out_s = finding.times_out_s
    if finding.locations or not incident.locations:
        incident.locations = finding.locations
    incident.fingerprint = fingerprint(finding)


def fingerprint(finding: Finding) -> str:
    """Equal for the same fault in another run: kind, operation and innermost user frame, no ranks."""
    frame = finding.locations[0].frame if finding.locations else None
    place = f"{frame.file.rpartition('/')[2]}:{frame.function}" if frame is not None else ""
    return hashlib.blake2b(f"{finding.kind}|{finding.op_name}|{place}".encode(), digest_size=8).hexdigest()


def gist(incident: Incident) -> tuple[object, ...]:
    """What a change of is news; where ranks diverge that is also which tensors, and where in them: found out later."""
    gist = incident.kind, incident.severity, incident.ranks, incident.waiting_ranks, incident.locations
    return (*gist, incident.names, incident.summary) if incident.kind.startswith("divergence.") else gist


def resolve(incident: Incident, now_s: float) -> None:
    """A wait that ended by itself was no catastrophe: it stays on record as a warning, with what it once was."""
    incident.resolved_s = now_s
    if incident.severity == Severity.CRITICAL:
        incident.severity = Severity.WARNING
