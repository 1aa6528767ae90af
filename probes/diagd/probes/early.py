"""What ended a process that never became a rank: left for the summary of a job in which no rank was seen.

Imports next to nothing before that: it runs at the start of every Python process of a job.
"""

from __future__ import annotations

import atexit
import os
import sys

from diagd.probes.state import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from diagd.probes.guard import Probe

SUFFIX = ".died"
_MAX_MESSAGE = 500
_TRACEBACK = "Traceback (most recent call last):"
_probe: Probe | None = None


def install(probe: Probe, module: Any) -> None:
    """Look once the interpreter ends: it keeps the exception that it reports, so no hook of ours is needed."""
    global _probe
    _probe = probe
    atexit.register(_at_end)


def remove() -> None:
    """Look no more."""
    atexit.unregister(_at_end)


def _at_end() -> None:
    if _probe is not None and STATE.box is None and not STATE.forked and STATE.settings.folder:
        _probe.run(_leave_note)


def _leave_note() -> None:
    import json
    import time

    from diagd.probes import rank

    error = getattr(sys, "last_value", None)
    if not isinstance(error, Exception) or rank.is_launcher():  # that one repeats how those below it ended
        return
    note = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "rank": os.environ.get("RANK", ""),
        "error": type(error).__name__,
        "message": _message(str(error))[:_MAX_MESSAGE],
        "place": _place(error),
        "at_ns": time.monotonic_ns(),
    }
    with open(os.path.join(STATE.settings.folder, f"{os.getpid()}{SUFFIX}"), "w", encoding="utf-8") as file:
        json.dump(note, file)


def _message(text: str) -> str:
    """Of one that carries another process's traceback, its beginning and that process's error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{lines[0].strip('-: ')}: {lines[-1]}" if _TRACEBACK in lines else text


def _place(error: Exception) -> str:
    """Innermost line of the script's own, "file.py:12"; empty where the message names it."""
    if isinstance(error, SyntaxError):
        return ""
    from diagd.probes import sites

    frames = sites.frames_of(error.__traceback__)
    own = next((frame for frame in frames if frame[3]), None)
    return f"{os.path.basename(own[1])}:{own[2]}" if own is not None else ""
