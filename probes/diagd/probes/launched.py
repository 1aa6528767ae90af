"""How many ranks the launcher has started, where `init_process_group` is asked for another number.

init/world      fact: "ASKED LAUNCHED", both numbers of ranks
"""

import os
from pathlib import Path
from typing import Any

from diagd.probes.signals import SIGNALS


def note_world(asked: Any) -> None:
    """Of torchrun, which starts each rank itself; other launchers' WORLD_SIZE may be of nodes. Called once."""
    given = asked if isinstance(asked, int) and asked > 0 else os.environ.get("WORLD_SIZE", "")
    launched = _told_at_start()
    if launched and str(given) != launched:
        SIGNALS.fact("init/world", f"{given} {launched}")


def _told_at_start() -> str:
    """The WORLD_SIZE that the process was started with, which its script may have changed since; empty if unknown."""
    words = Path("/proc/self/environ").read_bytes().split(b"\0")
    told = dict(word.decode(errors="replace").partition("=")[::2] for word in words)
    number = told.get("WORLD_SIZE", "")
    return number if "TORCHELASTIC_RUN_ID" in told and number.isdecimal() else ""
