"""The lines around the ranks: the job, its states and incidents, and all about the selected rank."""

from collections.abc import Sequence

from diagd.daemon.cli.jobview.pages import SEVERITY_STYLES
from diagd.daemon.cli.jobview.snapshot import Snapshot, wait_text
from diagd.daemon.cli.jobview.text import Line, Span, clean, duration, line, short, size
from diagd.daemon.cli.jobview.ui import Ui
from diagd.daemon.ranks import rank_ranges


def title_line(snapshot: Snapshot) -> Line:
    """The job, how long it runs, how many ranks there are and how far they are."""
    job, parts = snapshot.job, []
    if snapshot.now_s is not None and job["started_at"]:
        parts.append(f"running for {duration(snapshot.now_s - job['started_at'])}")
    seen, size_ = len(snapshot.ranks), len(snapshot.numbers)
    parts.append(f"{seen} rank{'s' * (seen != 1)}" + (f" of {size_}" if seen != size_ else ""))
    if len(job["nodes"]) > 1:
        parts.append(f"{len(job['nodes'])} nodes")
    if snapshot.steps is not None:
        least, most = snapshot.steps
        parts.append(f"step {most}" if least == most else f"steps {least}-{most}")
    if job["attempt"]:
        parts.append(f"attempt {job['attempt'] + 1}")
    if snapshot.source == "boxes":
        parts.append("the watch does not answer: nothing is judged")
    named = Span(f"job {clean(job['id'])}", "title")
    return (named, Span(", " + ", ".join(parts)), Span(f": {clean(' '.join(job['command']))}", "dim"))


def states_line(snapshot: Snapshot) -> Line:
    """How many ranks are in each state, and which slow the others down."""
    styles = {"running": "good", "blocked": "warn", "lost": "warn", "stopped": "bad", "killed": "bad"}
    ordered = sorted(snapshot.states, key=lambda name: (name != "running", name))
    spans = [Span(f"{snapshot.states[name]} {name}  ", styles.get(name, "dim")) for name in ordered]
    if slow := snapshot.slow():
        spans.append(Span(f"slow: {rank_ranges(slow, named=True)}", "warn"))
    return tuple(spans)


def incident_lines(snapshot: Snapshot, limit: int) -> list[Line]:
    """The worst open incidents, a line each."""
    shown = [
        line(f"{i['severity']} {i['kind']}: {clean(i['summary'])}", SEVERITY_STYLES.get(i["severity"], "plain"))
        for i in snapshot.open[:limit]
    ]
    hidden = len(snapshot.open) - len(shown)
    return [*shown, line(f"{hidden} more: i", "dim")] if shown and hidden else shown


def about_lines(snapshot: Snapshot, ui: Ui) -> list[Line]:
    """All that is known of the selected rank, in two lines."""
    if not snapshot.numbers:
        return []
    number = snapshot.numbers[ui.place(snapshot)]
    rank, mark = snapshot.ranks.get(number), snapshot.marks.get(number)
    if rank is None:
        return [(Span(f"rank {number}", "title"), Span(" has not reported yet")), line("")]
    idle_s, step_s = rank["seconds_since_progress"], rank["step_seconds"]
    first = [
        str(rank["state"]) + (f" ({clean(rank['exit'])})" if rank["exit"] else ""),
        "no step yet" if rank["step"] is None else f"step {rank['step']}" + (f" of {step_s:.3g} s" if step_s else ""),
        clean(rank["phase"]),
        "" if idle_s is None else f"progress {duration(float(idle_s))} ago",
        "" if (late_s := rank.get("late_seconds")) is None else f"{short(late_s)} late to operations",
    ]
    wait, whom = wait_text(rank, ""), snapshot.waits.get(number, "")
    second = [
        f"waits {f'in {wait}' if wait else ''} {whom}".replace("  ", " ").rstrip() if wait or whom else "",
        f"memory {size(rank['rss_bytes'])}" if rank["rss_bytes"] else "",
        f"pid {rank['pid']} on {clean(rank['host'] or rank['node'])}" if rank["pid"] else "",
    ]
    named = (Span(f"rank {number}", "title"), Span(f": {_comma(first)}"))
    found = (Span(f"; {mark.kind}", SEVERITY_STYLES.get(mark.severity, "plain")),) if mark else ()
    return [(*named, *found), line(f"  {_comma(second)}")]


def _comma(parts: Sequence[str]) -> str:
    return ", ".join(part for part in parts if part)
