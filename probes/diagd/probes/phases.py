"""The phase that a rank is in: set by the probes, and by a script that wants to say it itself."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from diagd.probes.box.layout import Live, Phase
from diagd.probes.native import load
from diagd.probes.state import STATE

_PHASE, _PHASE_NS, _TOTALS = int(Live.PHASE), int(Live.PHASE_NS), int(Live.PHASE_TOTALS)
_FORWARD_NS, _COLLECTIVE = int(Live.FORWARD_NS), int(Phase.COLLECTIVE)
_KEPT_OVER_COLLECTIVE = tuple(map(int, load.KEPT_OVER_COLLECTIVE))
_ident = threading.get_ident
_now = time.monotonic_ns


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Tell diagd what the code inside does, where it cannot see that; does nothing where diagd is not.

    Args:
        name: One of init, data, forward, backward, optimizer, collective, checkpoint, eval, other.

    Raises:
        ValueError: The name is none of these.
    """
    try:
        chosen = Phase[name.upper()]
    except (KeyError, AttributeError):
        names = ", ".join(member.name.lower() for member in Phase)
        raise ValueError(f"phase {name!r} is unknown; expected one of {names}") from None
    before = now_in()
    enter(chosen)
    STATE.held += 1
    try:
        yield
    finally:
        STATE.held -= 1
        if before is not None:
            enter(before)


def now_in() -> int | None:
    """The phase at the moment; None where there is no box, or this is not the thread whose phase is shown."""
    live = STATE.live
    if live is None or _ident() != STATE.trainer:
        return None
    return int(live[_PHASE])


def enter_in_python(chosen: int) -> None:
    """Begin a phase; only the training thread does, and not while the script itself has named one."""
    live = STATE.live
    if live is None or STATE.held or _ident() != STATE.trainer:
        return
    before = live[_PHASE]
    if before != chosen:  # as _change does, without another call: this is done several times a step
        now = _now()
        live[_TOTALS + before] += now - live[_PHASE_NS]
        live[_PHASE] = chosen
        live[_PHASE_NS] = now


enter: Callable[[int], None] = load.faster("enter", enter_in_python)


def forward_begins() -> None:
    """Say that what the phase shows is one: from a step on it is shown as that, so that its totals are the step's."""
    live = STATE.live
    if live is not None and not STATE.backward_depth and _ident() == STATE.trainer:
        live[_FORWARD_NS] = _now()


def _change(live: Any, before: int, chosen: int, now: int) -> None:
    live[_TOTALS + before] += now - live[_PHASE_NS]
    live[_PHASE] = chosen
    live[_PHASE_NS] = now


def begin_collective(now: int) -> int | None:
    """A blocking operation begins; the phase to go back to, None if it did not change."""
    live = STATE.live
    if STATE.held or _ident() != STATE.trainer:
        return None
    before = live[_PHASE]
    if before in _KEPT_OVER_COLLECTIVE:
        return None
    _change(live, before, _COLLECTIVE, now)
    return before  # type: ignore[no-any-return]  # an int


def end_collective(before: int, now: int) -> None:
    """It is over."""
    live = STATE.live
    if live is not None and live[_PHASE] == _COLLECTIVE:
        _change(live, _COLLECTIVE, before, now)
