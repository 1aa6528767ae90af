"""Autocast that something inside a region switches off and leaves off: what follows in it runs in full precision.

autocast/cut    scalar: 1 for each step with such a region; fact: where it is switched off, FILE<tab>LINE<tab>FUNCTION
"""

import sys
from typing import Any

from diagd.probes import sites
from diagd.probes.compiling import around_eager
from diagd.probes.guard import Patches, Probe
from diagd.probes.signals import SIGNALS

_OWN = "autocast_mode.py"  # torch's: entering and leaving regions switches it, too
_patches = Patches()


class _Cut:
    """This process's."""

    def __init__(self) -> None:
        self.step = 0  # the last one with such a region
        self.watched = False  # where it is switched off was looked for


CUT = _Cut()


def look(torch: Any, probe: Probe, region: Any, step: int) -> None:
    """A region of the training thread is about to end.

    Args:
        step: The one under way.
    """
    if not (region._enabled and torch.is_grad_enabled()) or torch.is_autocast_enabled(region.device):
        return
    if step != CUT.step:
        CUT.step = step
        SIGNALS.record("autocast/cut", 1.0, step)
    if not CUT.watched:
        CUT.watched = True
        _patches.replace(
            torch, "set_autocast_enabled", lambda f: around_eager(torch, probe, f, _switching, _ignore, _ignore)
        )


def put_back() -> None:
    """Put torch's own function back, and begin anew."""
    _patches.undo()
    CUT.__init__()  # type: ignore[misc]


def _switching(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    frame = sys._getframe(2)
    if (args and args[-1]) or kwargs.get("enabled") or frame.f_code.co_filename.endswith(_OWN):
        return
    if place := sites.text_from(frame):
        SIGNALS.fact("autocast/cut", place)
        _patches.undo()


def _ignore(*_: Any) -> None:
    """There is nothing to do afterwards."""
