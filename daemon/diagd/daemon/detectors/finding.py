"""What a detector says: who, where, how it is known, and how sure that is."""

from dataclasses import dataclass, field
from enum import StrEnum

from diagd.daemon.state.model import Frame

GOES_ON = ". The run goes on"  # what a summary says after what has happened


class Severity(StrEnum):
    """As in the report's schema."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def order(self) -> int:
        """0 for the most severe."""
        return ("critical", "warning", "info").index(self.value)


class Basis(StrEnum):
    """What a confidence rests on."""

    OBSERVATION = "observation"
    RESEARCH = "research"
    INFERENCE = "inference"
    REPORT = "report"

    @property
    def ceiling(self) -> float:
        """No confidence on this basis exceeds it (report.schema.json)."""
        return {"observation": 0.95, "research": 0.85}.get(self.value, 0.70)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact, and what it was read from: probe, flight recorder, kernel, stack, …"""

    what: str
    source: str
    rank: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause with its evidence; `key` names the catalog's fix for it."""

    key: str
    text: str
    confidence: float
    basis: Basis
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Location:
    """A frame of a culprit; `left` where the rank has gone on from there, so that what follows did not call it."""

    rank: int
    frame: Frame
    left: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, as one detector sees it now.

    `sure` where the evidence proves it (a mismatch seen in two ranks' boxes, a death); others must be found again
    before they are called critical.
    """

    kind: str
    severity: Severity
    ranks: tuple[int, ...]
    summary: str
    causes: tuple[Cause, ...]
    waiting_ranks: tuple[int, ...] = ()
    waits: str = ""  # who of these waits in what; empty where all wait in the finding's operation
    group: str | None = None
    op_name: str = ""
    op_seq: int = 0
    names: tuple[str, ...] = ()
    locations: tuple[Location, ...] = ()
    step: int | None = None
    sure: bool = False
    since_s: float = 0.0  # when the fault began, as far as is known
    times_out_s: float | None = None  # when the backend gives up the first of the waits; None not known
    explains: tuple[str, ...] = ()  # kinds, or families, that follow from it
    rooted: bool = False  # it was seen in the program itself, and follows from nothing that is computed
    goes_on: bool = False  # the job runs on in spite of it, worse: that it ends well is not the end of it
    key: str = ""  # tells two faults of one kind apart; the same for the same fault at every look
    extra: dict[str, str] = field(default_factory=dict)
