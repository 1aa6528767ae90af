"""The pages of text: incidents, groups, a rank's stacks, help."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from diagd.daemon.cli.jobview.cells import METRICS
from diagd.daemon.cli.jobview.snapshot import Json, Snapshot
from diagd.daemon.cli.jobview.text import Line, Span, clean, fit, line, wrap
from diagd.daemon.cli.jobview.ui import GROUPS, HELP, INCIDENTS, STACKS, Ui
from diagd.daemon.ranks import rank_ranges

SEVERITY_STYLES = {"critical": "bad", "warning": "warn", "info": "plain"}
_OF_VERDICT = 17  # where the text of a verdict's further lines begins
_HELP = f"""\
q                       back; on the ranks' page: quit (Ctrl-C: at once)
arrows, h j k l          select a rank
PgUp PgDn, Home End      a page on, the first and the last rank (also g, G)
/ and a number           jump to that rank
n, N                     the next, the last rank that stands out: culprits, stopped, lost, killed
Enter, s                 the stacks of the rank, read now; once more: read them again
d                        write a dump of all ranks of this machine to a new folder
i                        incidents: what is wrong, how it is known, what to do
o                        process groups: who waits in them, and how far their members are
t                        a row for each rank, or a cell
m                        what a cell shows: {", ".join(METRICS)}
?                        this help

A rank is a culprit (!) where an open incident names it, slow (s) where it only keeps the others waiting."""


def title(ui: Ui) -> str:
    """What the page is called."""
    return {INCIDENTS: "incidents", GROUPS: "process groups", STACKS: ui.text_title, HELP: "keys"}[ui.page]


def lines(ui: Ui, snapshot: Snapshot | None, width: int) -> list[Line]:
    """All lines of the page, for a window of `width` cells."""
    if ui.page == HELP or snapshot is None:
        return [line(text) for whole in _HELP.splitlines() for text in wrap(whole, width, 24)]
    if ui.page == INCIDENTS:
        return [made for incident in (*snapshot.open, *snapshot.resolved) for made in _incident(incident, width)] or [
            line(_nothing(snapshot))
        ]
    if ui.page == GROUPS:
        return list(group_lines(snapshot)) or [line("no process group is known" + _unjudged(snapshot))]
    return [line(text, _stack_style(text)) for whole in ui.text for text in wrap(clean_indented(whole), width, 6)]


def clean_indented(text: str) -> str:
    """Clean, but for the spaces that it begins with."""
    return " " * (len(text) - len(text.lstrip(" "))) + clean(text.lstrip(" "))


def _nothing(snapshot: Snapshot) -> str:
    return "no incident" + _unjudged(snapshot)


def _unjudged(snapshot: Snapshot) -> str:
    return ": the watch does not answer, so nothing is judged" if snapshot.source == "boxes" else ""


def _incident(incident: Json, width: int) -> Iterator[Line]:
    from diagd.daemon.report.text import verdict_lines

    head, *rest = verdict_lines(incident)
    style = SEVERITY_STYLES.get(incident["severity"], "plain") if incident.get("state", "open") == "open" else "dim"
    for text in wrap(head.removeprefix("diagd: "), width, 2):
        yield line(text, style)
    for whole in rest:
        for text in wrap(whole[5:], width, _OF_VERDICT - 5):
            yield line(text)
    yield line("")


@lru_cache(maxsize=1)
def group_lines(snapshot: Snapshot) -> tuple[Line, ...]:
    """A heading and a line for each process group, those with the most waiting ranks first; made once."""
    return tuple(_group_lines(snapshot))


def _group_lines(snapshot: Snapshot) -> Iterator[Line]:
    waiting = Counter(str((rank["wait"] or {}).get("group")) for rank in snapshot.ranks.values() if rank["wait"])
    groups = sorted(snapshot.groups, key=lambda g: (-_waiting(g, snapshot, waiting), -_spread(g)))
    if groups:
        yield line(_group_row("GROUP", "RANKS", "WAITING", "ISSUED", "DESCRIPTION", ""), "title")
    for group in groups:
        count = _waiting(group, snapshot, waiting)
        text = _group_row(
            clean(group["name"]), str(len(group["ranks"])), str(count or "-"), _issued(group),
            clean(group["description"]), rank_ranges(group["ranks"]),
        )  # fmt: skip
        yield (Span(text, "warn" if count and _spread(group) else "plain"),)


def _waiting(group: Json, snapshot: Snapshot, waiting: Counter[str]) -> int:
    """The members that wait in it; groups of one name (each node's own, say) are told apart by their members."""
    if not waiting[group["name"]]:
        return 0
    ranks = (snapshot.ranks.get(number) for number in group["ranks"])
    return sum(1 for rank in ranks if rank is not None and (rank["wait"] or {}).get("group") == group["name"])


def _spread(group: Json) -> int:
    least, most = group["issued_least"], group["issued_most"]
    return 0 if least is None or most is None else int(most) - int(least)


def _issued(group: Json) -> str:
    least, most = group["issued_least"], group["issued_most"]
    if least is None or most is None:
        return "-"
    return str(most) if least == most else f"{least}-{most}"


def _group_row(*texts: str) -> str:
    name, count, waiting, issued, description, ranks = texts
    numbers = f"{count:>5}  {waiting:>7}  {issued:>13}"
    return f"{fit(name, 16)}  {numbers}  {fit(description, 16)}  {ranks}".rstrip()


def _stack_style(text: str) -> str:
    """The user's own lines stand out."""
    stripped = text.lstrip()
    if stripped.startswith("* "):
        return "title"
    return "plain" if text.startswith("   ") else "dim"


def stack_text(found: Sequence[str]) -> tuple[str, ...]:
    """Lines of several processes' stacks."""
    return tuple(text for one in found for text in (*one.splitlines(), ""))
