"""Stacks on a signal: faulthandler writes them without the GIL, also while some C code never gives it back.

A forked child keeps the handler and writes to its parent's file: whoever asks, asks one process at a time. The last
stack, which a fatal signal or a launcher's SIGTERM leaves behind, goes to a file of its own.
"""

import faulthandler
import os
import signal
from pathlib import Path
from typing import IO, Any

from diagd.probes.box.layout import Live
from diagd.probes.guard import Probe
from diagd.probes.identity import write_identity
from diagd.probes.state import STATE

_file: IO[Any] | None = None
_signal = 0
_last_words: IO[Any] | None = None
_ours = {"fatal": False, "term": False}  # which of the last stack's two handlers we have set


def begin(probe: Probe) -> None:
    """Register the first free real-time signal; a user's own handlers sit on SIGUSR1 and 2."""
    global _file, _signal
    number = _signal or _free_signal()
    if not number or STATE.box is None:
        STATE.note("no stacks by signal: every real-time signal is taken")
        return
    _arm_last_words(STATE.box.path.parent / f"{os.getpid()}.last")
    path = STATE.box.path.parent / f"{os.getpid()}.stacks"
    _file = Path(path).open("a")  # noqa: SIM115 - open for as long as the process lives
    faulthandler.register(number, file=_file, all_threads=True, chain=False)
    _signal = number
    STATE.live[Live.STACK_SIGNAL] = number
    write_identity(stacks_file=str(path))


def _arm_last_words(path: Path) -> None:
    """Have the stack written when the process dies of a signal, where nobody else has asked for such a thing.

    Crashes (SIGSEGV, SIGABRT, …) keep what they print and their exit status; so does SIGTERM, whose default follows.
    """
    global _last_words
    _last_words = path.open("a")
    if not faulthandler.is_enabled():
        faulthandler.enable(file=_last_words, all_threads=True)
        _ours["fatal"] = True
    free = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and not _caught() >> (signal.SIGTERM - 1) & 1
    if free:
        # The thread that takes it alone: its frames stand still, those of the others may not.
        faulthandler.register(signal.SIGTERM, file=_last_words, all_threads=False, chain=True)
        _ours["term"] = True


def leave_sigterm() -> None:
    """Give SIGTERM back in a forked child, where a data worker's usual end would look like the rank's.

    Only where no handler was set since: to unregister would put the default in its place. A child's crash may stand in
    the file; who reads it compares its time with the rank's end.
    """
    if _ours["term"] and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        faulthandler.unregister(signal.SIGTERM)
    _ours.update(fatal=False, term=False)


def remove() -> None:
    """Give the signals back."""
    if _ours["fatal"]:
        faulthandler.disable()
    leave_sigterm()
    if _signal:
        faulthandler.unregister(_signal)
        if STATE.live is not None:
            STATE.live[Live.STACK_SIGNAL] = 0


def _free_signal() -> int:
    caught = _caught()
    for number in range(signal.SIGRTMIN + 6, signal.SIGRTMAX + 1):
        if signal.getsignal(number) == signal.SIG_DFL and not caught >> (number - 1) & 1:
            return number
    return 0


def _caught() -> int:
    """Signals that some handler is set for, also by C code, as a bit mask."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return sum(int(line.split()[1], 16) for line in lines if line.startswith(("SigCgt", "SigIgn")))
    except (OSError, ValueError, IndexError):
        return 0
