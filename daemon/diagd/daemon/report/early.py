"""What is known of a job in which no rank came up: its exit code, and what ended it."""

from collections.abc import Mapping
from typing import Any

EARLY = "before any rank: "  # what the note begins with that the watch makes of what such processes have left
NO_RANK = "No rank was seen (no torch.distributed, no optimizer step)"
_SIGNALLED = 128  # and the signal's number: who sent it knows why


def early_end_of(report: Mapping[str, Any]) -> str:
    """What ended the command before any rank came up, where a process of it has left a word; else empty."""
    return next((note.removeprefix(EARLY) for note in report.get("notes") or () if note.startswith(EARLY)), "")


def early_text(report: Mapping[str, Any]) -> str:
    """That the command failed before any rank came up, and why as far as it is known; empty where it did not."""
    code = report["job"].get("exit_code")
    if report["ranks"] or not code:
        return ""
    text = f"{NO_RANK} before the command ended with exit code {code}"
    if why := early_end_of(report):
        return f"{text}; {why}"  # what had failed is a fact, that the command ended by it is likely
    return text if code > _SIGNALLED else f"{text}; why, its own last lines say"
