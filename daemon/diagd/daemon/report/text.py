"""Verdicts and summaries in a few lines of plain text."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from diagd.daemon.incidents.incident import Incident
from diagd.daemon.ranks import rank_ranges
from diagd.daemon.report.drill import drill_text, unwatched
from diagd.daemon.report.early import NO_RANK, early_text
from diagd.daemon.report.known import because_text
from diagd.daemon.report.lines import MAX_LINE, cut, one_line

_INDENT = " " * 7  # as wide as "diagd: "
_MAX_NOTE = 120
_FRAMES = 3
# Here the incident's operation is the culprits', and those that wait are in another.
OTHER_OPERATIONS = ("hang.collective_mismatch", "hang.group_cycle", "hang.store_wait")
_EARLIER = 3  # incidents of attempts before this one, in the summary
_COLOURS = {"critical": "\033[1;31m", "warning": "\033[1;33m", "info": "\033[1m"}
_PLAIN = "\033[0m"

Json = Mapping[str, Any]


def verdict_lines(incident: Incident | Json, *, colour: bool = False) -> list[str]:
    """What, where, who waits, how it is known, what to do: at most six lines, to be printed as they are.

    Args:
        incident: An incident, or its form in report.json.
        colour: For a terminal.
    """
    found = incident.as_json() if isinstance(incident, Incident) else incident
    lines = [f"diagd: {_headline(found, colour)}"]
    for label, text in _details(found):
        # What is known is cut fact by fact: the last of them counts as much as the first.
        lines.append(cut(f"{_INDENT}{label:<9} {one_line(text)}", 2 * MAX_LINE if label == "because" else MAX_LINE))
    return lines


def _headline(incident: Json, colour: bool) -> str:
    label = f"{incident['severity']} {incident['kind']}"
    if incident["state"] == "resolved":
        label = f"resolved {incident['kind']}"
    if colour:
        label = f"{_COLOURS[incident['severity']]}{label}{_PLAIN}"
    return f"{label}: {one_line(incident['summary'])}"


def _details(incident: Json) -> Iterable[tuple[str, str]]:
    if places := _places(incident["locations"], " and " if incident["kind"].startswith("slow.") else " ← "):
        yield "where", places
    if incident["waiting_ranks"]:
        yield "waiting", waiting_text(incident)
    cause = incident["causes"][0] if incident["causes"] else None
    if cause is not None:
        yield "because", because_text(cause, incident["ranks"])
        yield "do", cause["fix"]["action"]
    more = f"diagd explain {incident['kind']}"
    if incident.get("dump"):
        more += f" · dump: {incident['dump']}"
    yield "more", more


def waiting_text(incident: Json) -> str:
    """Who waits, and in what: "ranks 0-2 in ALLREDUCE #720 of group 0"."""
    if incident.get("waits"):
        return str(incident["waits"])
    text = rank_ranges(incident["waiting_ranks"], named=True)
    op = incident["op"]
    if op and incident["kind"] not in OTHER_OPERATIONS:
        seq = f" #{op['seq']}" if op.get("seq") else ""
        text += f" in {op['name']}{seq}"
        if incident["group"]:
            text += f" of group {incident['group']}"
    return text


def _places(locations: Sequence[Json], joint: str) -> str:
    """Equal places of several ranks once: `ranks 1,3 in load, data.py:41 ← main, train.py:80`.

    Where a slow rank was seen most often are no frames of one stack, so that another joint stands between them.
    """
    by_rank: dict[int, list[str]] = {}
    for place in locations:
        after = ", then in " if place.get("left") else joint
        by_rank.setdefault(place["rank"], []).append(
            f"{place['function']}, {PurePath(place['file']).name}:{place['line']}{after}"
        )
    groups: dict[str, list[int]] = {}
    for rank, frames in by_rank.items():
        groups.setdefault("".join(frames[:_FRAMES]).removesuffix(joint), []).append(rank)
    return "; ".join(f"{rank_ranges(ranks, named=True)} in {frames}" for frames, ranks in groups.items())


def summary_lines(report: Json, said_after_s: float = 0.0, slow_after_s: float = 0.0) -> list[str]:
    """How the job went, in one to three lines, also when all went well.

    Args:
        report: As in report.json.
        said_after_s: A wait that was over sooner was never said, so nothing is said of it now, either.
        slow_after_s: Likewise of ranks that became slow so shortly before the job's end.
    """
    ended_s = report["job"].get("ended_at")
    slow_after_s = 0.0 if report["job"].get("exit_code") else slow_after_s  # what it was at when it fell is told
    incidents = [one for one in report["incidents"] if not _was_short(one, said_after_s, slow_after_s, ended_s)]
    notes = unwatched(report.get("notes") or [])
    attempt = report["job"].get("attempt") or 0
    ranks = _ranks_and_steps(report["ranks"], attempt) if report["ranks"] or not notes else "No rank was watched"
    verdict = _incidents(incidents, attempt, ended_s) if report.get("judged", True) else "not judged"
    if short := len(report["incidents"]) - len(incidents):
        verdict += f", but for {short} short wait{'s' * (short > 1)} that nobody was told of"
    code = report["job"].get("exit_code")
    if code and not incidents:  # the launcher itself, or what it was to start, has failed
        verdict += f", and the command ended with exit code {code}"
    early = "" if incidents or notes else early_text(report)
    lines = [cut(f"{one_line(early).rstrip('.')}.") if early else f"{ranks}; {verdict}."]
    if drill := drill_text(report.get("notes") or []):
        lines.append(cut(f"{one_line(drill)}."))
    if notes:
        lines.append(
            cut("Not watched: " + "; ".join(cut(one_line(note).rstrip("."), _MAX_NOTE) for note in notes) + ".")
        )
    return lines


def cut_off(report: Json) -> list[str]:
    """A line where the report of an ended job was not written to the job's end, as on a full disk; else none."""
    cut = report.get("final") is False
    return ["The last report could not be written: what came after this is not known."] if cut else []


def _was_short(incident: Json, said_after_s: float, slow_after_s: float, ended_s: float | None) -> bool:
    """Whether it is a warning of a wait that ended by itself, or with the job, before a person was told of it."""
    over_s = incident.get("resolved_at") or ended_s
    if incident["peak_severity"] == "critical" or over_s is None:
        return False
    if incident["state"] != "resolved":
        return str(incident["kind"]).startswith("slow.") and bool(over_s - incident["opened_at"] < slow_after_s)
    return str(incident["kind"]).startswith(("hang.", "slow.")) and bool(over_s - incident["opened_at"] < said_after_s)


def _ranks_and_steps(ranks: Sequence[Json], attempt: int) -> str:
    if not ranks:
        return NO_RANK
    count = f"{len(ranks)} rank{'s' * (len(ranks) != 1)}"
    steps = sorted({rank["step"] or 0 for rank in ranks})
    if steps == [0]:
        return f"{count}, no training step seen{' since the restart' * bool(attempt)}"
    span = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]}-{steps[-1]}"
    return f"{count}, {span} step{'s' * (steps[-1] != 1)}{', restarted' * bool(attempt)}"


def _incidents(incidents: Sequence[Json], attempt: int, ended_s: float | None) -> str:
    if not incidents:
        return "no incident"
    worst = incidents[0]
    counts = Counter(incident["peak_severity"] for incident in incidents)  # as it was said when it happened
    what = ", ".join(f"{counts[severity]} {severity}" for severity in _COLOURS if counts[severity])
    over = _over(worst, ended_s)
    text = f"{len(incidents)} incident{'s' * (len(incidents) != 1)} ({what}), first {_named(worst)}{over}"
    before = dict.fromkeys(_named(one) for one in incidents[1:] if one["attempt"] < attempt)
    return f"{text}; before a restart {', '.join(list(before)[:_EARLIER])}" if before else text


def _over(incident: Json, ended_s: float | None) -> str:
    """What is resolved; and that a rank was slow until the job had ended."""
    if incident["state"] == "resolved":
        return ", resolved since"
    return ", to the job's end" if ended_s is not None and incident["kind"].startswith("slow.") else ""


def _named(incident: Json) -> str:
    culprits = f" ({rank_ranges(incident['ranks'], named=True)})" if incident["ranks"] else ""
    return f"{incident['kind']}{culprits}"


def shown_path(path: Path) -> str:
    """Relative where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)
