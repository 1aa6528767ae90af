"""The one place where findings become incidents: when they open, what they are merged with, when they are over."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.incidents.filling import fill, fingerprint, gist, resolve
from diagd.daemon.incidents.healed import is_healed, with_end
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.incidents.levelled import levelled, with_level
from diagd.daemon.incidents.over import CALM_S, is_over
from diagd.daemon.incidents.pauses import Pauses
from diagd.daemon.state.job import JobState

CONFIRM_S = 0.9  # what is not proven must be found again after so long
AGAIN_S = 600.0  # what comes back within this time, and is no wait, is the same fault
_WAITS = ("hang", "slow")
_LATE = ("slow.", "hang.rank_blocked", "hang.data_starved", "hang.rank_missing")
_BY_ITSELF = ("exit.error", "exit.early")  # what memory that runs out kills is killed; an exception says what it is of
DYING_S = 2.0
ENDING_S = 120.0
OFTEN = 3  # differences that were made equal again: what comes then is more of the same
DEEPENS_S = 60.0  # a consequence shows so long before its cause at most; what stood longer is another matter


@dataclass(slots=True)
class _Candidate:
    """A finding that is not yet believed."""

    finding: Finding
    first_s: float
    last_s: float


class IncidentBook:
    """All incidents of one job."""

    def __init__(self, restored: Sequence[Incident] = ()) -> None:
        self._incidents = list(restored)
        for incident in self._incidents:
            incident.restored = incident.is_open
        self._last_found: dict[str, float] = {}
        self._missed: dict[str, float] = {}  # since when each is no longer found
        self._milder_since: dict[str, float] = {}
        self._candidates: dict[tuple[str, str], _Candidate] = {}
        self._pauses = Pauses()

    @property
    def incidents(self) -> list[Incident]:
        """All of them, most severe first, then oldest first."""
        return sorted(self._incidents, key=lambda i: i.order)

    @property
    def unsure(self) -> bool:
        """Whether something was found that must be found again."""
        return bool(self._candidates)

    def update(self, findings: Iterable[Finding], state: JobState) -> list[Incident]:
        """Take one look's findings.

        Returns:
            The incidents that opened, changed in what is news of them, or were resolved.
        """
        changed: list[Incident] = []
        ended_well = state.ended_s is not None and state.exit_code == 0
        # What has broken the others' operations is no less so for a script that catches that.
        found = [one for one in findings if not ended_well or one.kind.startswith("exit.")]
        for finding in found:
            if (incident := self._take(finding, state)) is not None:
                changed.append(incident)
        self._forget(state.now_s)
        for incident in self._incidents:
            last_s = self._last_found.setdefault(incident.id, state.now_s)
            if last_s == state.now_s:
                self._missed.pop(incident.id, None)
            missed_s = None if last_s == state.now_s else self._missed.setdefault(incident.id, state.now_s)
            retold = self._retold(incident, state.now_s)
            if incident.is_open and is_over(incident, state, last_s, retold=retold, missed_s=missed_s):
                if incident.kind.startswith(_WAITS):
                    self._pauses.ends(incident.id, incident.fingerprint, incident.ranks, last_s)
                _settle(incident, state)
                changed.append(incident)
        return changed

    def _take(self, finding: Finding, state: JobState) -> Incident | None:
        incident = self._same_fault(finding)
        if _being_ended(state):
            return None  # what was known before stands; what ranks do now is the ending's doing
        if incident is not None:
            self._last_found[incident.id] = state.now_s
            self._pauses.stands(incident.id, finding)
            return incident if self._change(incident, finding, state) else None
        if (
            self._explained(finding, state)
            or self._follows(finding, state)
            or self._pauses.is_as_before(finding, fingerprint(finding), state.now_s)
        ):
            return None
        if not self._believed(finding, state):
            return None
        self._supersede(finding, state.now_s)
        return self._again(finding, state) or self._deepen(finding, state) or self._open(finding, state)

    def _same_fault(self, finding: Finding) -> Incident | None:
        family = finding.kind.split(".")[0]
        for incident in self._incidents:
            if not incident.is_open:
                continue
            alike = incident.kind == finding.kind or (family == "exit" and incident.kind.startswith("exit."))
            if alike and incident.key == finding.key:
                return incident
            both_waits = family in _WAITS and incident.kind.split(".")[0] in _WAITS
            if (both_waits and _overlap(incident, finding)) or _was_dying(incident, finding):
                return incident
        return None

    def _retold(self, incident: Incident, now_s: float) -> bool:
        """Whether what its ranks wait for is found now to be something else."""
        involved = {*incident.ranks, *incident.waiting_ranks}
        return any(
            other.is_open
            and self._last_found.get(other.id) == now_s
            and involved & {*other.ranks, *other.waiting_ranks}
            for other in self._incidents
            if other is not incident and other.kind.startswith(_WAITS)
        )

    def _explained(self, finding: Finding, state: JobState) -> bool:
        """What follows while a critical fault stands is its consequence: ranks that die of it, or wait elsewhere."""
        for incident in self._incidents:
            if incident.is_open and incident.severity == Severity.CRITICAL and incident.attempt == state.attempt:
                if incident.kind.startswith("memory.") and finding.kind in _BY_ITSELF:
                    continue
                after = finding.since_s >= incident.opened_s - 1.0 or state.now_s - incident.opened_s > CALM_S
                if after and (finding.kind.startswith("exit.") or incident.kind.startswith("exit.")):
                    return True
        return False

    def _follows(self, finding: Finding, state: JobState) -> bool:
        """Whether it follows from what the job goes on with, also where this look has missed that."""
        if not finding.goes_on or finding.rooted:
            return False
        stand = (one for one in self._incidents if one.is_open and one.attempt == state.attempt)
        return any(one.explains and finding.kind.startswith(one.explains) for one in stand)

    def _believed(self, finding: Finding, state: JobState) -> bool:
        if finding.sure or state.from_dumps:  # of dumps there is no second look
            return True
        key = (finding.kind, finding.key)
        seen = self._candidates.setdefault(key, _Candidate(finding, state.now_s, state.now_s))
        seen.last_s = state.now_s
        return state.now_s - seen.first_s >= CONFIRM_S or state.ended_s is not None

    def _forget(self, now_s: float) -> None:
        for key, seen in list(self._candidates.items()):
            if now_s - seen.last_s > CALM_S:
                del self._candidates[key]

    def _supersede(self, finding: Finding, now_s: float) -> None:
        """A death of a rank ends what was said of its being late."""
        if finding.kind.startswith("exit."):
            for incident in self._incidents:
                late = incident.kind.partition(".")[0] in _WAITS and incident.severity != Severity.CRITICAL
                if incident.is_open and late and _overlap(incident, finding):
                    resolve(incident, now_s)

    def _again(self, finding: Finding, state: JobState) -> Incident | None:
        """What the job goes on with and was thought to be over is open again."""
        for incident in reversed(self._incidents):
            alike = (incident.kind, incident.key, incident.attempt) == (finding.kind, finding.key, state.attempt)
            if not (alike and finding.goes_on and incident.goes_on and set(incident.ranks) & set(finding.ranks)):
                continue
            if incident.healed and self._healings(finding) < OFTEN:
                continue  # another difference
            if incident.resolved_s is not None and state.now_s - incident.resolved_s < AGAIN_S:
                incident.resolved_s, self._last_found[incident.id] = None, state.now_s
                self._candidates.pop((finding.kind, finding.key), None)
                fill(incident, finding)
                return incident
        return None

    def _healings(self, finding: Finding) -> int:
        alike = (one for one in self._incidents if (one.kind, one.key) == (finding.kind, finding.key))
        return sum(one.healed for one in alike)

    def _deepen(self, finding: Finding, state: JobState) -> Incident | None:
        """What was told of its consequence, which often shows first, becomes the incident of the cause."""
        for incident in self._incidents:
            if finding.explains and incident.is_open and incident.kind.startswith(finding.explains):
                milder = finding.severity.order > incident.severity.order  # how bad it is has been said already
                if milder or incident.attempt != state.attempt or state.now_s - incident.opened_s > DEEPENS_S:
                    continue
                self._last_found[incident.id], incident.step = state.now_s, finding.step
                self._candidates.pop((finding.kind, finding.key), None)
                fill(incident, finding)
                return incident
        return None

    def _open(self, finding: Finding, state: JobState) -> Incident:
        incident = Incident(
            id=f"{len(self._incidents) + 1:03d}-{fingerprint(finding)[:8]}", kind=finding.kind,
            severity=finding.severity, opened_s=state.now_s, ranks=(), summary="", causes=(), fixes=(),
            attempt=state.attempt, step=finding.step, peak_severity=finding.severity,
        )  # fmt: skip
        self._incidents.append(incident)
        self._last_found[incident.id] = state.now_s
        self._candidates.pop((finding.kind, finding.key), None)
        fill(incident, finding)
        return incident

    def _change(self, incident: Incident, finding: Finding, state: JobState) -> bool:
        """Bring the incident up to date; milder news only once it has lasted: one look may miss what the last saw."""
        milder = finding.severity.order > incident.severity.order
        if milder and incident.restored:
            return False  # this watcher has not waited for as long as the one before it
        if milder:
            since = self._milder_since.setdefault(incident.id, state.now_s)
            if state.now_s - since < CALM_S or state.ended_s is not None or state.stopping_s is not None:
                return False
        self._milder_since.pop(incident.id, None)
        if finding.severity.order < incident.severity.order and not self._believed(finding, state):
            return False
        before = gist(incident)
        fill(incident, finding)
        return before != gist(incident)


def _being_ended(state: JobState) -> bool:
    """Whether diagd or a person is ending the job just now."""
    return state.stopping_s is not None and state.now_s - state.stopping_s < ENDING_S


def _was_dying(incident: Incident, finding: Finding) -> bool:
    """Whether a rank that was called late or stuck was on its way out already, which takes some seconds with torch."""
    if not finding.kind.startswith("exit.") or not incident.kind.startswith(_LATE):
        return False
    return bool(set(incident.ranks) & set(finding.ranks)) and finding.since_s - incident.opened_s <= DYING_S


def _overlap(incident: Incident, finding: Finding) -> bool:
    """Whether both speak of the same culprits, or one's culprits are among the other's waiting ranks."""
    mine, theirs = set(incident.ranks), set(finding.ranks)
    if mine & theirs:
        return True
    return bool(mine & set(finding.waiting_ranks)) and bool(theirs & set(incident.waiting_ranks))


def _with_end(incident: Incident, state: JobState) -> str:
    """Its summary, with how it is known to be over where something was seen that says so."""
    level = levelled(incident, state)
    return with_level(incident, level) if level is not None else with_end(incident, state)


def _settle(incident: Incident, state: JobState) -> None:
    """It is over; its summary says how, where that was seen."""
    incident.healed, incident.summary = is_healed(incident, state), _with_end(incident, state)
    resolve(incident, state.now_s)
