"""Processes of the job that an exception ended before they were ranks, by the notes that they left."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from diagd.daemon.report.early import EARLY

_SUFFIX = ".died"
_NUMBERS = ("pid", "parent", "at_ns")


def early_end(run_dir: Path) -> str:
    """A note on what ended the job before any rank came up; empty where no process left a word.

    Of several the first of those that were to be ranks, else the last: what a shell goes on after did not end the job.
    A launcher that fails because what it started has failed is not it.
    """
    notes = sorted(_notes(run_dir), key=lambda note: int(note["at_ns"]))
    parents = {note["parent"] for note in notes}
    deepest = [note for note in notes if note["pid"] not in parents]
    ranks = [note for note in deepest if note.get("rank")]
    found = ranks[0] if ranks else deepest[-1] if deepest else None
    return _text(found) if found is not None else ""


def _notes(run_dir: Path) -> Iterator[dict[str, Any]]:
    for path in run_dir.glob(f"*{_SUFFIX}"):
        with suppress(OSError, ValueError):
            note = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(note, dict) and all(isinstance(note.get(key), int) for key in _NUMBERS):
                yield note


def _text(note: dict[str, Any]) -> str:
    who = f"rank {note['rank']}" if note.get("rank") else f"process {note['pid']}"
    place = f" at {note['place']}" if note.get("place") else ""
    return f"{EARLY}{who} had failed with {note.get('error')}: {note.get('message')}{place}"
