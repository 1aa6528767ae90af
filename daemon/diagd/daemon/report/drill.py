"""Tells a drill from a real fault: the ranks note what was planted in them."""

from collections.abc import Sequence

DRILL = "drill: "  # what such notes begin with, as the probe that plants the faults writes them
_PLANTED = "injected "


def drill_text(notes: Sequence[str]) -> str:
    """What was planted and where it acted, for a person; empty where this was no drill."""
    said = [note.removeprefix(DRILL) for note in notes if note.startswith(DRILL)]
    if not said:
        return ""
    if not any(note.startswith(_PLANTED) for note in said):
        said.append("nothing was injected so far: no rank has come to that step")
    return f"Drill, no real fault: {'; '.join(said)}"


def unwatched(notes: Sequence[str]) -> list[str]:
    """The other notes: what is not watched, and why."""
    return [note for note in notes if not note.startswith(DRILL)]
