"""What is said on stderr while the job runs."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.incidents.incident import Incident

Verdict = Callable[[Incident], list[str]]
# A wait that is not critical is said once it has lasted for this part of the user's own patience: before, it stands in
# the report alone. Uploads and long checkpoints on one rank are everyday life.
WARN_AFTER_RATIO = 0.3
GOES_ON_S = 5.0  # what slows each step was measured over many of them before it was found: no pause that may end
_MEASURE = re.compile(r"\b\d[\d.]* (?:(?:s|ms|min|h|[KMGT]iB|times)\b|%)")
_WAITS = ("hang.", "slow.")
_FACT = "hang.rank_stopped"  # seen in the kernel, and no long work: said at once, where others wait for it


class Announcer:
    """Says verdicts: each when it is new, grows or is over, not at every detail that changes.

    What is only worth knowing, a rank at a debugger's prompt say, gets one line in all: a person may be typing there.
    """

    def __init__(self, verdict: Verdict, write: Callable[[str], object], hang_after_s: float = 0.0) -> None:
        self._verdict = verdict
        self._write = write
        self._warn_after_s = WARN_AFTER_RATIO * hang_after_s
        self._said: dict[str, tuple[object, ...]] = {}
        self._changed: dict[str, tuple[tuple[object, ...], float]] = {}  # since when each is as it is
        self._places: dict[str, tuple[object, ...]] = {}  # that were said of each, the first two
        self._lines: dict[str, frozenset[str]] = {}  # of each incident that was said in full

    def restore(self, incidents: Sequence[Incident]) -> None:
        """These were said by a watcher before this one."""
        self._said.update((i.id, _gist(i)) for i in incidents)

    def consider(self, incidents: Iterable[Incident], now_s: float) -> None:
        """Say what is news among them."""
        for incident in incidents:
            gist = _gist(incident)
            if self._changed.get(incident.id, ((), 0.0))[0] != gist:
                self._changed[incident.id] = gist, now_s
            if (self._said.get(incident.id) != gist or self._is_placed_anew(incident)) and self._is_due(
                incident, now_s
            ):
                self._said[incident.id] = gist
                self._note_place(incident)
                self.say("\n".join(self._news(incident)))

    def _is_placed_anew(self, incident: Incident) -> bool:
        """Whether the place of what stands still is known better now than it was said: told once more, not again."""
        said = self._places.get(incident.id)
        stands = incident.is_open and incident.severity is Severity.CRITICAL and incident.kind.startswith("hang.")
        return stands and said is not None and len(said) == 1 and said[0] != _place(incident)

    def _note_place(self, incident: Incident) -> None:
        self._places[incident.id] = (*self._places.get(incident.id, ()), _place(incident))[:2]

    def _news(self, incident: Incident) -> list[str]:
        """What to say of it: of one that was said in full and has grown, only the lines that are new."""
        first, *rest = self._verdict(incident)
        if not incident.is_open or incident.severity is Severity.INFO:
            return [first]  # over: its cause was said before
        said, self._lines[incident.id] = self._lines.get(incident.id, frozenset()), frozenset(map(_timeless, rest))
        return [first, *(line for line in rest if _timeless(line) not in said)]

    def say(self, text: str) -> None:
        """Print; a reader that is gone is no reason to end."""
        with suppress(OSError, ValueError):
            self._write(text + "\n")

    def _is_due(self, incident: Incident, now_s: float) -> bool:
        slow = incident.kind.startswith("slow.") and incident.severity is not Severity.CRITICAL
        if incident.id in self._said and incident.is_open and slow:  # its cause may seem another for a while
            return now_s - self._changed[incident.id][1] >= self._warn_after_s
        if incident.id in self._said:
            return incident.is_open or self._said[incident.id][1] is not Severity.INFO
        if not incident.is_open:
            return False
        if incident.severity is Severity.CRITICAL or not incident.kind.startswith(_WAITS):
            return True
        if incident.kind == _FACT and incident.waiting_ranks:
            return True
        patience_s = min(GOES_ON_S, self._warn_after_s) if _slows(incident) else self._warn_after_s
        return now_s - incident.opened_s >= patience_s


def _place(incident: Incident) -> object:
    frame = incident.locations[0].frame if incident.locations else None
    return (frame.file, frame.line) if frame is not None else None


def _slows(incident: Incident) -> bool:
    """Whether it makes the job slower, step by step, and holds it up nowhere."""
    return incident.kind.startswith("slow.") and incident.goes_on and incident.severity is not Severity.CRITICAL


def _timeless(line: str) -> str:
    """The line without its measures: that a wait has become longer the headline says."""
    return _MEASURE.sub("", line)


def _gist(incident: Incident) -> tuple[object, ...]:
    return incident.kind, incident.severity, incident.ranks, incident.is_open
