"""Plants the faults of a drill, after the training step that each names; never imported where none is asked for.

The one part of diagd that is meant to disturb the job. So it stands outside the wall that all other probes stand
behind: what a fault raises must reach the script. Its hooks come after those that count the steps, and only look
whether the count has grown. A fault acts in the job's first attempt alone, or no restart would ever get past it.
"""

import functools
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

from diagd.probes import identity, inject_groups
from diagd.probes.box.layout import Live
from diagd.probes.faults import KINDS, Fault, FaultError, parse_all
from diagd.probes.guard import EAGER, Patches, Probe
from diagd.probes.state import STATE

DRILL = "drill: "  # what the notes of a drill begin with
AGAIN = ", before a restart: after it a fault does not act again"
_FOR_EVER_S = 3600.0
_USUAL_OF = 16  # steps
_LEAST_STEPS = 3
_STEP = int(Live.STEP)
_patches = Patches()
_hooks: list[Any] = []


class _Drill:
    """What is planted in this process, and how far it has come."""

    def __init__(self) -> None:
        self.faults: tuple[Fault, ...] = ()
        self.step = 0
        self.step_ended_ns = 0
        self.usual_ns: deque[int] = deque(maxlen=_USUAL_OF)
        self.said: set[Fault] = set()


DRILL_HERE = _Drill()


def install(probe: Probe, module: Any) -> None:
    """torch.optim.optimizer, torch.autograd or DeepSpeed's engine is there: wherever a training step can end."""
    if not DRILL_HERE.faults:
        try:
            DRILL_HERE.faults = parse_all(STATE.settings.faults)
        except FaultError as error:
            probe.trip(str(error))
            return
        STATE.listeners.append(_at_switch)
        _at_switch(STATE.recording)
    torch = sys.modules["torch"]
    if module.__name__ == "torch.optim.optimizer":
        _hooks.append(module.register_optimizer_step_post_hook(_looking(torch, lambda *_: None)))
    elif module.__name__ == "torch.autograd":
        _patches.replace(module, "backward", functools.partial(_looking, torch))
    else:
        for name in ("_take_model_step", "step"):
            _patches.replace(module.DeepSpeedEngine, name, functools.partial(_looking, torch))


def remove() -> None:
    """Take the hooks away."""
    _patches.undo()
    while _hooks:
        _hooks.pop().remove()
    if _at_switch in STATE.listeners:
        STATE.listeners.remove(_at_switch)
    DRILL_HERE.__init__()  # type: ignore[misc]


def _looking(torch: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """What looks for a step that has ended, after the original."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not torch.compiler.is_compiling():
            look()
        return result

    call.__code__ = call.__code__.replace(co_filename=EAGER)  # type: ignore[attr-defined]  # it is a function
    return call


def _at_switch(recording: bool) -> None:
    if STATE.box is None:  # a forked child begins anew, and has no notes
        faults = DRILL_HERE.faults
        DRILL_HERE.__init__()  # type: ignore[misc]
        DRILL_HERE.faults = faults
    if recording:
        again = AGAIN if identity.fact("attempt", 0) else ""
        STATE.note(f"{DRILL}--inject {' '.join(map(str, DRILL_HERE.faults))}{again}")


def look() -> None:
    """Plant what is due, if a training step has ended since the last look."""
    live, drill = STATE.live, DRILL_HERE
    if live is None or not STATE.is_rank or live[_STEP] <= drill.step:
        return
    before, drill.step = drill.step, int(live[_STEP])
    _note_length()
    if identity.fact("attempt", 0) == 0:
        rank = identity.fact("rank", -1)
        for fault in drill.faults:
            first, last = fault.steps
            due = before < last and first <= drill.step
            if due and (fault.hits(rank) or KINDS[fault.kind].everyone):
                _act(fault, rank)
    drill.step_ended_ns = time.monotonic_ns()


def _act(fault: Fault, rank: int) -> None:
    if fault.hits(rank) and fault not in DRILL_HERE.said:
        DRILL_HERE.said.add(fault)
        STATE.note(f"{DRILL}injected {fault.kind} at step {DRILL_HERE.step}")
        text = f"diagd: injected {fault.kind} into rank {rank} at step {DRILL_HERE.step}, as --inject says\n"
        os.write(2, text.encode())  # not through sys.stderr: a rank that is killed would leave it in the buffer
    _ACTIONS[fault.kind](fault, rank)


def _hang(*_: Any) -> None:
    while True:
        time.sleep(_FOR_EVER_S)


def _leave(fault: Fault, rank: int) -> None:
    inject_groups.leave(fault, rank)
    _hang()


def _slow(fault: Fault, rank: int) -> None:
    """Sleep for as long as makes this step `factor` times as long as its steps usually are.

    That is measured before the first one, or from the first ones on: later ones may have waited for other slow ranks.
    """
    if DRILL_HERE.usual_ns:
        time.sleep((fault.factor - 1) * median(DRILL_HERE.usual_ns) / 1e9)


def _note_length() -> None:
    drill = DRILL_HERE
    known = len(drill.usual_ns) >= _LEAST_STEPS and any(fault.kind == "slow" for fault in drill.said)
    if drill.step_ended_ns and not known:
        drill.usual_ns.append(time.monotonic_ns() - drill.step_ended_ns)


def _signal(number: signal.Signals) -> Callable[[Fault, int], None]:
    return lambda *_: os.kill(os.getpid(), number)


def _exit(fault: Fault, rank: int) -> None:
    raise SystemExit(fault.code)


def _raise(fault: Fault, rank: int) -> None:
    raise RuntimeError(f"diagd injected this error at step {DRILL_HERE.step}, as --inject says")


def _starve(fault: Fault, rank: int) -> None:
    loader = sys.modules.get("torch.utils.data.dataloader")
    for name in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
        _patches.replace(getattr(loader, name, None), "_next_data", lambda _: _hang)


def _hold_gil(fault: Fault, rank: int) -> None:
    import ctypes

    # A lock that its holder waits for: unlike a sleep it outlasts signals too, so that the GIL is never let go.
    library, lock = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
    library.pthread_mutex_lock(lock)
    library.pthread_mutex_lock(lock)


_ACTIONS: dict[str, Callable[[Fault, int], None]] = {
    "hang": _hang,
    "slow": _slow,
    "stop": _signal(signal.SIGSTOP),
    "kill": _signal(signal.SIGKILL),
    "exit": _exit,
    "raise": _raise,
    "leave": _leave,
    "mismatch": inject_groups.mismatch,
    "cycle": inject_groups.cycle,
    "unsent": inject_groups.unsent,
    "store": inject_groups.ask_store,
    "data": _starve,
    "gil": _hold_gil,
}
