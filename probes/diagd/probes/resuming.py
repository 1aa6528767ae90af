"""What a script loads from a checkpoint, and what of it reaches no model, optimizer or schedule.

Only what can be proved: that a model took none of a file's tensors because their names begin otherwise, and that a run
which goes on from a checkpoint of its own leaves the optimizer's moments or the schedule's position in the file. Of a
checkpoint of another run nothing is said: fine-tuning takes the weights alone, and means to.

    checkpoint/loaded     fact: weights were loaded, into this class or from this file: the run need not begin untrained
    checkpoint/took       scalar: weights were loaded before this step
    checkpoint/restored   scalar: an optimizer was given state before this step
    checkpoint/names      fact: tensors that were not loaded, for the prefix of their names; empty once they were
    checkpoint/moments    fact: an optimizer has loaded state, of so many parameters
    checkpoint/optimizer  fact: a resumed run that steps with fresh optimizer state
    checkpoint/schedule   fact: a resumed run whose learning-rate schedule began anew
"""

import gc
import os
import sys
import weakref
from typing import Any

from diagd.probes import cast_states, itself, marks, turns, whose
from diagd.probes.box.layout import Live
from diagd.probes.checkpoint_file import CheckpointFile
from diagd.probes.checkpoint_names import NAMES, misnamed
from diagd.probes.compiling import around_eager
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.marks import KNOWN
from diagd.probes.own_files import OWN, forget, under_way
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE
from diagd.probes.whose import WHOSE

PATIENCE = 3  # steps after loading in which the rest may be loaded too
_STEP = int(Live.STEP)

_patches = Patches()
_joined: list[turns.Turn] = []
_told: set[str] = set()


class _Resuming:
    """This process's."""

    def __init__(self) -> None:
        self.file: CheckpointFile | None = None  # the newest one that holds more than weights
        self.took = 0  # the last step before which weights were loaded
        self.loads = 0  # of weights into modules
        self.stepping: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers that were in use before that was read


RESUMING = _Resuming()


def install(probe: Probe, module: Any) -> None:
    """A module that saves, loads or takes what was loaded is there."""
    torch = sys.modules["torch"]
    name = module.__name__
    if name == "torch.serialization":
        _patches.replace(module, "save", wrapper(probe, _saving, _saved, _ignore))
        _patches.replace(module, "load", wrapper(probe, _reading, _read, _ignore))
    elif name == "torch.nn.modules.module":
        _patches.replace(
            module.Module, "load_state_dict", lambda f: around_eager(torch, probe, f, _given, _model_took, _ignore)
        )
        _patches.replace(module.Module, "state_dict", wrapper(probe, itself.asked, itself.given, _ignore))
    elif name == "torch.optim.lr_scheduler":
        for kind in vars(module).values():
            if isinstance(kind, type) and "load_state_dict" in vars(kind):
                _patches.replace(kind, "load_state_dict", wrapper(probe, _given, _schedule_took, _ignore))
    else:
        STATE.listeners.append(_at_switch)
        _patches.replace(module.Optimizer, "load_state_dict", wrapper(probe, _given, _optimizer_took, _ignore))
        _joined.append(turns.join(probe, _following, before=_stepping, after=_stepped))


def remove() -> None:
    """Put torch's own functions back."""
    _patches.undo()
    while _joined:
        turns.leave(_joined.pop().probe)


def _following(step: int) -> int:
    file = RESUMING.file
    return step + 1 if file is not None and file.model_taken else turns.NEVER


def _ignore(*_: Any) -> None:
    """It failed, and the script will see that."""


def _at_switch(recording: bool) -> None:
    if STATE.forked and STATE.box is None:
        RESUMING.__init__()  # type: ignore[misc]
        forget()
        itself.forget()


def _path(value: Any) -> str | None:
    return os.path.abspath(os.fspath(value)) if isinstance(value, str | os.PathLike) else None


def _saving(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    path = _path(args[1] if len(args) > 1 else kwargs.get("f"))
    return (path, args[0] if args else kwargs.get("obj")) if path is not None else None


def _saved(token: Any, result: Any) -> None:
    path, content = token
    step = OWN.wrote(path)
    file = CheckpointFile(path, True)
    file.look_through(content)
    if file.tensors or file.moments:
        _mark(path, step)


def _reading(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _path(args[0] if args else kwargs.get("f")) or "a buffer"


def _read(path: str, content: Any) -> None:
    """Look through what a file holds; keeps no tensor alive."""
    file = CheckpointFile(path, OWN.has(path, path))
    file.look_through(content)
    if file.tensors and (file.moments or file.position is not None):
        RESUMING.file = file
    if file.tensors and file.own:
        reread(path, path)


def wrote(path: str) -> None:
    """The run has written a checkpoint by other ways than torch.save."""
    _mark(path, OWN.wrote(path))


def _mark(path: str, step: int) -> None:
    kept = KNOWN.take(path, step, RESUMING.stepping)
    if kept is not None:
        whose.wrote(kept, step)


def reread(path: str, file: str) -> None:
    """The run has read what may be a checkpoint of its own.

    Args:
        file: Of it, which is as old as it is.
    """
    if OWN.reread(path, file):
        for turn in _joined:
            turn.wake()


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = args[1] if len(args) > 1 else kwargs.get("state_dict")
    return (args[0], given) if given is not None else None


def _model_took(token: Any, result: Any) -> None:
    module, given = token
    step = under_way()
    RESUMING.loads += bool(given)
    SIGNALS.record("checkpoint/loads", float(RESUMING.loads), step)
    if given and step > RESUMING.took:
        RESUMING.took = step
        SIGNALS.record("checkpoint/took", 1.0, step)
    if given and "checkpoint/loaded" not in _told:
        _told.add("checkpoint/loaded")
        SIGNALS.fact("checkpoint/loaded", type(module).__name__)
    itself.look(module, given, step)
    file = RESUMING.file
    if file is not None and not file.model_taken:
        file.model_taken = any(
            hasattr(type(value), "untyped_storage") and value.data_ptr() in file.tensors for value in given.values()
        )
        for turn in _joined:
            turn.wake()
    missing, unexpected = getattr(result, "missing_keys", ()), getattr(result, "unexpected_keys", ())
    text = misnamed(module, given, missing, unexpected) if missing and unexpected else ""
    if missing and unexpected and step == RESUMING.took > 1:  # with what the run had learned before it
        strays = "|".join(",".join(map(str, names[:NAMES])) for names in (missing, unexpected))
        SIGNALS.fact("checkpoint/strays", strays[:900], step)
    if text or ("checkpoint/names" in _told and not missing):
        _told.add("checkpoint/names")
        SIGNALS.fact("checkpoint/names", text)


def found(path: str, file: str, moments: int) -> Any:
    """A checkpoint that is read by other ways than torch.load holds an optimizer's state for so many parameters.

    Args:
        file: Of it, which is as old as it is.
    """
    RESUMING.file = made = CheckpointFile(path, OWN.has(path, file))
    made.moments = moments
    return made


def take_weights(file: Any) -> None:
    """The run has the weights of what `found` made."""
    file.model_taken = True
    for turn in _joined:
        turn.wake()


def tell_loaded(what: str) -> None:
    """Weights were loaded by other ways than a module's load_state_dict, from this."""
    if "checkpoint/loaded" not in _told:
        _told.add("checkpoint/loaded")
        SIGNALS.fact("checkpoint/loaded", what)


def _optimizer_took(token: Any, result: Any) -> None:
    file = RESUMING.file
    optimizer, given = token
    _tell_moments(given)
    if isinstance(given, dict) and given.get("state"):
        SIGNALS.record("checkpoint/restored", 1.0, under_way())
        WHOSE.awaited = True
        for turn in _joined:
            turn.wake()
    if file is not None:
        # Without any state it takes nothing of the file's: a fresh optimizer asks a distributed checkpoint for none.
        file.optimizer_taken = not file.moments or bool(given.get("state")) or file.optimizer_taken
        file.resumes = True
    cast_states.took(optimizer, given)


def _tell_moments(given: Any) -> None:
    if isinstance(given, dict) and given.get("state") and "checkpoint/moments" not in _told:
        _told.add("checkpoint/moments")
        SIGNALS.fact("checkpoint/moments", f"{len(given['state'])} parameters")


def _schedule_took(token: Any, result: Any) -> None:
    if RESUMING.file is not None:
        RESUMING.file.schedule_taken = True


def _stepping(optimizer: Any) -> None:
    cast_states.stepping(optimizer, under_way())
    expected = not KNOWN.expected.is_empty
    if not expected and not WHOSE.awaited:
        return
    now, step = marks.kept_by(optimizer), under_way()
    if expected:
        KNOWN.compare(optimizer, now, step)
    if WHOSE.awaited:
        WHOSE.tell(now, step)


def _stepped(optimizer: Any) -> None:
    file = RESUMING.file
    if file is None:
        RESUMING.stepping.add(optimizer)
        return
    if not file.model_taken:
        return
    if optimizer in RESUMING.stepping:
        RESUMING.file = None  # the run has gone back to weights from before, and keeps its optimizer
        return
    file.steps_since += 1
    if file.steps_since < PATIENCE:
        return
    RESUMING.file = None
    step = max(STATE.live[_STEP], 0) if STATE.live is not None else 0
    resumed = file.own or file.resumes or file.optimizer_taken or file.schedule_taken
    if file.moments and not file.optimizer_taken and resumed:
        SIGNALS.fact("checkpoint/optimizer", f"{os.path.basename(file.path)}|{file.moments}", step)
    if file.position and not file.schedule_taken and resumed and _behind(file.position):
        SIGNALS.fact("checkpoint/schedule", f"{os.path.basename(file.path)}|{file.position}", step)


def _behind(position: int) -> bool:
    """Whether there is a schedule, and each that there is stands before the position in the file."""
    scheduler = sys.modules["torch.optim.lr_scheduler"].LRScheduler
    found = [thing for thing in gc.get_objects() if scheduler in type(thing).__mro__]
    return bool(found) and all(getattr(one, "last_epoch", position) < position for one in found)
