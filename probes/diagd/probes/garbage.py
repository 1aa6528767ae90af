"""How long Python's garbage collector holds the process: a pause of it on one rank is a wait of all the others."""

import gc
import time

from diagd.probes.box.layout import Live
from diagd.probes.guard import Probe
from diagd.probes.state import STATE

_GARBAGE = int(Live.GARBAGE_NS)
_now = time.monotonic_ns


class _Pause:
    probe: Probe | None = None
    began_ns = 0


def begin(probe: Probe) -> None:
    """Have the collector say when it begins and ends."""
    _Pause.probe = probe
    if _told not in gc.callbacks:
        gc.callbacks.append(_told)


def remove() -> None:
    """Ask it no longer."""
    if _told in gc.callbacks:
        gc.callbacks.remove(_told)


def _told(phase: str, info: dict[str, int]) -> None:
    """Called by the collector, under the GIL, in whichever thread has set it off; it prints what is raised here."""
    if phase == "start":
        _Pause.began_ns = _now()
        return
    live, probe = STATE.live, _Pause.probe
    if live is not None and probe is not None and probe.on and _Pause.began_ns:
        live[_GARBAGE] += _now() - _Pause.began_ns
