"""Who this rank is, as the box tells it."""

import os
import platform
import sys
from typing import Any

from diagd.probes import sites, start
from diagd.probes.box import layout
from diagd.probes.box.layout import Live
from diagd.probes.state import STATE

_FACTS: dict[str, Any] = {}
_MAX_WORDS = 200


def write_identity(**facts: Any) -> None:
    """Write the identity anew, with `facts` added to what was known."""
    box = STATE.box
    if box is None:
        return
    if _FACTS.get("pid") != os.getpid():
        _FACTS.clear()
        STATE.on_note = write_identity
    _FACTS.update(_from_environment() if not _FACTS else {}, **facts)
    torch = sys.modules.get("torch")
    _FACTS["torch"] = str(getattr(torch, "__version__", ""))
    if "installed" not in _FACTS and hasattr(torch, "__version__"):
        _FACTS["installed"] = sites.installed_folders()
    _FACTS["probes"] = [name for name, probe in start.SWITCHES.items() if not probe.tripped]
    _FACTS["notes"] = list(STATE.notes)
    STATE.live[Live.PROBES_OFF] = STATE.off_bits
    if not box.set_text(layout.IDENTITY, _FACTS):
        box.set_text(layout.IDENTITY, {**_FACTS, "command": [], "notes": STATE.notes[:5]})


def fact(name: str, default: Any) -> Any:
    """What this rank's identity says at the moment."""
    return _FACTS.get(name, default)


def _from_environment() -> dict[str, Any]:
    host = os.uname().nodename
    return {
        "job": STATE.settings.job,
        "rank": _number("RANK", -1),
        "local_rank": _number("LOCAL_RANK", -1),
        "world_size": _number("WORLD_SIZE", -1),
        "host": host,
        "node": os.environ.get("DIAGD_NODE") or host,
        "pid": os.getpid(),
        "attempt": _number("TORCHELASTIC_RESTART_COUNT", 0),
        "backend": "",
        "python": platform.python_version(),
        "command": [word[:500] for word in sys.orig_argv[:_MAX_WORDS]],
        "run_id": os.environ.get("TORCHELASTIC_RUN_ID", ""),
        "fr_socket": "",
        "stacks_file": "",
        "store": {},
    }


def _number(name: str, default: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default
