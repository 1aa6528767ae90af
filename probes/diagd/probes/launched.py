"""What the launcher made of this process, where `init_process_group` is told something else.

init/world      fact: "ASKED LAUNCHED", both numbers of ranks
init/rank       fact: "ASKED LAUNCHED", both numbers of this rank
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diagd.probes.signals import SIGNALS


def note(given: Mapping[str, Any]) -> bool:
    """Of torchrun, which starts each rank itself; other launchers' numbers may be of nodes. Called once.

    Args:
        given: The arguments of `init_process_group`.

    Returns:
        Whether the rank that is given is the launcher's, as far as is known.
    """
    told = _told_at_start()
    _is_same("WORLD_SIZE", given.get("world_size"), told)
    return _is_same("RANK", given.get("rank"), told)


def _is_same(name: str, given: Any, told: Mapping[str, str]) -> bool:
    asked = str(given) if isinstance(given, int) and given >= 0 else os.environ.get(name, "")
    launched = told.get(name, "")
    if not launched.isdecimal() or asked == launched:
        return True
    SIGNALS.fact("init/rank" if name == "RANK" else "init/world", f"{asked} {launched}")
    return False


def _told_at_start() -> dict[str, str]:
    """The environment that torchrun has started the process with, which its script may have changed since."""
    words = Path("/proc/self/environ").read_bytes().split(b"\0")
    told = dict(word.decode(errors="replace").partition("=")[::2] for word in words)
    return told if "TORCHELASTIC_RUN_ID" in told else {}
