"""The rank's one thread of diagd's: says that the process lives, and how far each group's backend has come."""

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable

from diagd.probes import groups
from diagd.probes.box.layout import Live
from diagd.probes.guard import Probe
from diagd.probes.handled import HANDLED
from diagd.probes.state import STATE

PERIOD_S = 0.25
_TIMED = 16  # one in so many ticks is timed
ERRANDS: deque[Callable[[], None]] = deque(maxlen=32)  # small work off the step path that a probe has for this thread
LOOKS: list[Callable[[], None]] = []  # what is looked at each time, in next to no time; none of it raises
_stop = threading.Event()
_thread: threading.Thread | None = None
_registered = False


def begin(probe: Probe) -> None:
    """Start the thread, anew in a forked child that has become a rank."""
    global _stop, _thread, _registered
    _stop = threading.Event()
    _thread = threading.Thread(target=_beat, args=(probe, _stop), name="diagd", daemon=True)
    _thread.start()
    if not _registered:
        # A thread that is inside torch when the interpreter goes away takes the process down with it.
        _registered = True
        atexit.register(remove)


def remove() -> None:
    """Stop the thread."""
    global _thread
    _stop.set()
    if _thread is not None and _thread.is_alive():
        _thread.join(timeout=1.0)
    _thread = None


def _beat(probe: Probe, stop: threading.Event) -> None:
    box = STATE.box
    ticks = 0
    _show_thread()
    while not stop.is_set() and box is not None and STATE.box is box:
        ticks += 1
        if probe.on:
            probe.run(_tick if ticks % _TIMED else _timed_tick)
        elif not probe.tripped:
            STATE.live[Live.HEARTBEAT_NS] = time.monotonic_ns()
        else:
            return
        stop.wait(PERIOD_S)


def _show_thread() -> None:
    """Give the thread its name where /proc shows it, which Python itself does not before 3.14."""
    native = threading.get_native_id()
    if STATE.live is not None:
        STATE.live[Live.OWN_THREAD] = native
    try:
        with open(f"/proc/self/task/{native}/comm", "w") as comm:
            comm.write("diagd")
    except OSError:
        pass


def _timed_tick() -> None:
    began = time.thread_time_ns()  # a system call, and most of a tick's wall time is waiting for the GIL
    _tick()
    STATE.live[Live.OVERHEAD_NS] += (time.thread_time_ns() - began) * _TIMED


def _tick() -> None:
    STATE.live[Live.HEARTBEAT_NS] = time.monotonic_ns()
    groups.count()
    HANDLED.look()
    for look in LOOKS:
        look()
    if ERRANDS:
        ERRANDS.popleft()()
