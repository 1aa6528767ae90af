"""Tells a drill from a real fault: the ranks note what was planted in them."""

from collections.abc import Sequence

from diagd.daemon.report.early import EARLY

DRILL = "drill: "  # what such notes begin with, as the probe that plants the faults writes them
AGAIN = ", before a restart: after it a fault does not act again"  # what the ranks of a later attempt note of it
_PLANTED, _ASKED = "injected ", "--inject "


def drill_text(notes: Sequence[str]) -> str:
    """What was planted and where it acted, for a person; empty where this was no drill."""
    said = [note.removeprefix(DRILL) for note in notes if note.startswith(DRILL)]
    if not said:
        return ""
    if not any(note.startswith(_PLANTED) or note.endswith(AGAIN) for note in said):
        return f"Drill that has done nothing so far: {'; '.join(said)}; no rank of that number has come to that step"
    if idle := _idle(said):
        said.append(f"{', '.join(idle)} did not act so far: no rank of that number has come to that step")
    return f"Drill, no real fault: {'; '.join(said)}"


def _idle(said: Sequence[str]) -> list[str]:
    """The faults that were asked for, and of which no rank has said that it has planted one of that name."""
    asked = [
        fault for note in said if note.startswith(_ASKED) and not note.endswith(AGAIN) for fault in note.split()[1:]
    ]
    planted = {note.removeprefix(_PLANTED).split()[0] for note in said if note.startswith(_PLANTED)}
    return [fault for fault in asked if fault.partition(":")[0] not in planted]


def unwatched(notes: Sequence[str]) -> list[str]:
    """The other notes: what is not watched, and why."""
    return [note for note in notes if not note.startswith((DRILL, EARLY))]
