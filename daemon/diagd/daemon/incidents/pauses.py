"""Waits that end by themselves, time and again, as those for a checkpoint do: told once, and then only where longer."""

from diagd.daemon.detectors.finding import Finding, Severity

AS_BEFORE = 1.5  # times as long as one like it that ended by itself, a wait is no news


class Pauses:
    """What waits of this job have ended by themselves, by fingerprint and culprits."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}  # by incident
        self._lasted: dict[tuple[str, tuple[int, ...]], float] = {}

    def stands(self, incident: str, finding: Finding) -> None:
        """The incident was found again."""
        self._since[incident] = finding.since_s

    def ends(self, incident: str, fingerprint: str, ranks: tuple[int, ...], last_s: float) -> None:
        """It is over, and the job goes on; it was found last at `last_s`."""
        lasted_s = last_s - self._since.pop(incident, last_s)
        self._lasted[fingerprint, ranks] = max(lasted_s, self._lasted.get((fingerprint, ranks), 0.0))

    def is_as_before(self, finding: Finding, fingerprint: str, now_s: float) -> bool:
        """Whether this wait lasts hardly longer than one like it did; how long is too long is not for it to say."""
        lasted_s = self._lasted.get((fingerprint, finding.ranks))
        if lasted_s is None or finding.severity == Severity.CRITICAL or finding.goes_on:
            return False
        return now_s - finding.since_s < AS_BEFORE * lasted_s
