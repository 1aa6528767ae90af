"""By which of the script's own variables a model is known, where its class says little: a Sequential, or a copy.

The fact `models/aliases` holds a line for each: its title in the ledger, and the variable, with a tab between them.
Names in the ledger stay as they are: these are the same on all ranks, whatever each calls its model.
"""

import sys
from types import FrameType
from typing import Any

from diagd.probes import holders, sites
from diagd.probes.signals import SIGNALS

MOST = 16  # models
FRAMES, OBJECTS = 12, 200  # that are looked at


def tell(titled: tuple[tuple[str, Any], ...], frame: FrameType | None) -> None:
    """Look from the frame that steps outward; the nearest name counts.

    Args:
        titled: The models with their titles.
    """
    wanted = {id(root): title for title, root in titled if _says_little(title)}
    if not wanted:
        return
    found: dict[str, str] = {}
    for _ in range(FRAMES):
        if frame is None or len(found) == len(wanted):
            break
        if sites.is_user(frame):
            holders.with_variables(frame, lambda names: _look(names, wanted, found))
        frame = frame.f_back
    if found:
        lines = [f"{title}\t{name}" for title, name in list(found.items())[:MOST]]
        SIGNALS.fact("models/aliases", "\n".join(lines)[:900])


def _says_little(title: str) -> bool:
    """Also a class of torch's own: what it is for, it does not say."""
    return title.endswith(" (copy)") or "#" in title or hasattr(sys.modules.get("torch.nn"), title)


def _look(names: dict[str, Any], wanted: dict[int, str], found: dict[str, str]) -> None:
    """Variables first, then what the script's own objects among them hold."""
    some = [(name, value) for name, value in list(names.items())[:OBJECTS] if type(name) is str and name[:1] != "_"]
    for name, value in some:
        if (title := wanted.get(id(value))) is not None:
            found.setdefault(title, name)
    for _, value in some:
        for name, held in _attributes(value):
            if (title := wanted.get(id(held))) is not None:
                found.setdefault(title, name)


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Of an object of a class of the script's; by its own dictionary, whatever its class makes of attributes."""
    if not holders.file_of(type(value)):
        return []
    try:
        names = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return []
    return [item for item in list(names.items())[:OBJECTS] if type(item[0]) is str] if type(names) is dict else []
