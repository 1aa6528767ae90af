"""A status of the form diagd.status/1, made ready to be shown: what people look for in it, found once."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from diagd.daemon.cli.jobview.text import clean, duration
from diagd.daemon.ranks import rank_ranges

Json = Mapping[str, Any]
UNREPORTED = "not reported"
GONE = frozenset({"exited", "killed"})
MAX_UNREPORTED = 100_000  # a world size beyond this is rather a mistake than a job
_SEVERITIES = ("critical", "warning", "info")


class Mark(NamedTuple):
    """Why a rank stands out: the worst open incident that names it as a culprit."""

    severity: str
    kind: str

    @property
    def slow(self) -> bool:
        """Whether it only slows the others down."""
        return self.kind.startswith("slow.")


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One moment of a job."""

    job: Json
    source: str
    now_s: float | None
    numbers: Sequence[int]  # the ranks that there are, also those that have not reported yet
    ranks: Mapping[int, Json]  # those that have
    groups: Sequence[Json]
    open: Sequence[Json]  # incidents, the worst first
    resolved: Sequence[Json]
    marks: Mapping[int, Mark]
    waits: Mapping[int, str]  # whom a rank waits for, where an incident says so
    states: Mapping[str, int]  # how many ranks are in each
    steps: tuple[int, int] | None  # the least and the most of any rank that still lives, else of all
    most_bytes: int

    @classmethod
    def of(cls, status: Json) -> Self:
        """From a status."""
        ranks = {rank["rank"]: rank for rank in sorted(status["ranks"], key=lambda rank: int(rank["rank"]))}
        numbers = _numbers(ranks, status["job"].get("world_size"))
        incidents = sorted(status["incidents"], key=lambda i: _order(i["severity"]))
        found = [i for i in incidents if i.get("state", "open") == "open"]
        states = Counter(str(rank["state"]) for rank in ranks.values())
        if missing := len(numbers) - len(ranks):
            states[UNREPORTED] = missing
        return cls(
            job=status["job"], source=status["source"], now_s=status["now"], numbers=numbers, ranks=ranks,
            groups=status["groups"], open=found, resolved=[i for i in incidents if i not in found],
            marks=_marks(found), waits=waits_for(found), states=states, steps=_steps(ranks.values()),
            most_bytes=max((rank["rss_bytes"] or 0 for rank in ranks.values()), default=0),
        )  # fmt: skip

    def slow(self) -> list[int]:
        """The ranks that slow the others down, as open incidents say."""
        return sorted(rank for rank, mark in self.marks.items() if mark.slow)

    def notable(self) -> list[int]:
        """The ranks that are worth a look: culprits first, then those that do not simply run."""
        culprits = sorted(self.marks, key=lambda rank: (_order(self.marks[rank].severity), rank))
        others = [n for n, rank in self.ranks.items() if rank["state"] not in ("running", "blocked", "exited")]
        return list(dict.fromkeys([*culprits, *others]))


def _numbers(ranks: Mapping[int, Json], world_size: object) -> Sequence[int]:
    last = max(ranks, default=-1)
    size = world_size if isinstance(world_size, int) else 0
    return range(max(size, last + 1)) if max(size, last) <= MAX_UNREPORTED else sorted(ranks)


def _order(severity: str) -> int:
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)


def _marks(incidents: Sequence[Json]) -> dict[int, Mark]:
    """Not by what is only worth knowing: that names all ranks most often, and the culprit would look like them."""
    found: dict[int, Mark] = {}
    for incident in (one for one in incidents if one["severity"] != "info"):
        for rank in incident["ranks"]:
            found.setdefault(rank, Mark(incident["severity"], incident["kind"]))
    return found


def _steps(ranks: Iterable[Json]) -> tuple[int, int] | None:
    known = [rank for rank in ranks if rank["step"] is not None]
    steps = [rank["step"] for rank in known if rank["state"] not in GONE] or [rank["step"] for rank in known]
    return (min(steps), max(steps)) if steps else None


def waits_for(incidents: Iterable[Json]) -> dict[int, str]:
    """Whom each rank waits for, where an open incident says so."""
    found: dict[int, str] = {}
    for incident in incidents:
        if incident.get("state", "open") == "open" and incident["ranks"]:
            text = f"for {rank_ranges(incident['ranks'], named=True)}"
            found = {**dict.fromkeys(incident["waiting_ranks"], text), **found}
    return found


def wait_text(rank: Json, otherwise: str = "-") -> str:
    """What a rank waits in."""
    wait = rank.get("wait")
    if not isinstance(wait, Mapping):
        return clean(wait) if wait else otherwise
    text = clean(wait.get("op") or wait.get("name") or "")
    if wait.get("group"):
        text += f" ({clean(wait['group'])})"
    if isinstance(wait.get("seconds"), int | float):
        text += f" {duration(float(wait['seconds']))}"
    return text.strip() or otherwise
