"""How the user's code ended: the exception nobody caught, or the call of exit, with the user's frames."""

import atexit
import builtins
import os
import sys
import threading
import time
from typing import Any

from diagd.probes import groups, rank, sites
from diagd.probes.box import layout
from diagd.probes.box.layout import Live
from diagd.probes.carried import carried
from diagd.probes.fast import FAST, Fast
from diagd.probes.guard import Patches, Probe, around, disguised, wrapper
from diagd.probes.state import STATE

_patches = Patches()
_probe: Probe | None = None
_hooked = False
_noted: dict[str, Any] = {}


def install(probe: Probe, module: Any) -> None:
    """A module that starts ranks of its own is there: what they raise is caught before any hook sees it."""
    if module.__name__ == "multiprocessing.process":
        _patches.replace(module.BaseProcess, "run", wrapper(probe, _always, _ignore, _raised))
    else:
        _patches.replace(module, "_wrap", lambda original: disguised(_spawned(probe, original), original))


def _spawned(probe: Probe, original: Any) -> Any:
    """What torch's spawn runs in the child: it swallows what the user's function raises, so the look goes inside."""

    def call(fn: Any, *args: Any) -> Any:
        return original(around(probe, fn, _always, _ignore, _raised), *args)

    return call


def begin(probe: Probe) -> None:
    """There is a box: from now on, watch for the end."""
    global _probe, _hooked
    _probe = probe
    _noted.clear()
    if _hooked:
        return
    _hooked = True
    _patches.replace(threading, "excepthook", wrapper(probe, _at_thread_end, _ignore, _ignore))
    _patches.replace(sys, "exit", wrapper(probe, _at_raising_exit, _ignore, _ignore))
    _patches.replace(os, "_exit", wrapper(probe, _at_exit, _ignore, _ignore))
    quitter = type(getattr(builtins, "exit", None))
    if quitter.__name__ == "Quitter":
        _patches.replace(quitter, "__call__", wrapper(probe, _at_quit, _ignore, _ignore))
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_finalizing)
    atexit.register(_finalizing)


def remove() -> None:
    """Put the original functions back."""
    _patches.undo()


def _always(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return True


def _ignore(*_: Any) -> None:
    """There is nothing to do afterwards."""


def _raised(token: Any, error: BaseException) -> None:
    if isinstance(error, SystemExit):
        return  # noted where it was raised, if it was by exit
    rank.consider_failing_child()
    note_exception(type(error), error, error.__traceback__)


def retract_exit() -> None:
    """The script has caught its own exit and goes on."""
    STATE.exit_noted = False
    if _noted.get("what") == "exit":
        _noted.clear()
        if STATE.box is not None:
            STATE.box.set_text(layout.ENDING, None)


def note_exception(kind: type[BaseException], error: BaseException | None, traceback: Any) -> None:
    """An exception that nobody caught; the first one stays."""
    if _noted.get("what") != "exception":
        _note({**_described("exception", kind, error, traceback), **_kept("thread", "exit")})


def _described(what: str, kind: type[BaseException], error: BaseException | None, traceback: Any) -> dict[str, Any]:
    message, elsewhere = carried(_text(error))
    return {
        "what": what,
        "type": kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
        "message": message[:2000],
        "code": 1,
        "frames": elsewhere + sites.frames_of(traceback),
        "at_ns": time.monotonic_ns(),
    }


def _text(error: BaseException | None) -> str:
    try:
        return str(error)
    except (RuntimeError, ValueError, TypeError, AttributeError):
        return "(its message cannot be shown)"


def _at_thread_end(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A thread died of an exception; the process goes on, perhaps waiting for it."""
    given = args[0]
    found = _described("thread", given.exc_type, given.exc_value, given.exc_traceback)
    found["thread"] = getattr(given.thread, "name", "")
    if not _noted or _noted["what"] == "thread":  # the newest is the nearest to what may come of it
        _note(found)
    else:
        _note({**_noted, "thread_ended": found})


def _at_raising_exit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sys.exit: in another thread than the main one it ends that thread alone, which its own hook tells."""
    if threading.current_thread() is threading.main_thread():
        _at_exit(args, kwargs)


def _at_exit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _note_exit(args[0] if args else kwargs.get("status"), sys._getframe(2))


def _at_quit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if threading.current_thread() is not threading.main_thread():
        return
    _note_exit(args[1] if len(args) > 1 else kwargs.get("code"), sys._getframe(2))


def _note_exit(code: Any, frame: Any) -> None:
    _look_for_exception()
    number = 0 if code is None else code if isinstance(code, int) else 1
    found = {
        "what": "exit",
        "type": "",
        "message": code[:2000] if isinstance(code, str) else "",
        "code": number,
        "frames": sites.frames_from(frame),
        "at_ns": time.monotonic_ns(),
    }
    error = sys.exc_info()[1]
    if isinstance(error, Exception):  # in its handler: that is why, and where it was raised is the place
        why = _described("exit", type(error), error, error.__traceback__)
        found |= {"type": why["type"], "message": why["message"], "frames": why["frames"] + found["frames"]}
    STATE.exit_noted = True
    FAST[Fast.PLAIN] = 0  # a step would show that it was none
    if _noted.get("what") == "exception":
        _note({**_noted, "exit": found})
    else:
        _note({**found, **_kept("thread")})


def _kept(*whats: str) -> dict[str, Any]:
    """What was noted before and is now only a part of the story."""
    what = _noted.get("what")
    return {"thread_ended" if what == "thread" else what: dict(_noted)} if what in whats else {}


def _look_for_exception() -> None:
    """The interpreter keeps the exception that it reports, whatever hook the script has: so none of ours is needed."""
    error = getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        note_exception(type(error), error, error.__traceback__)


def _finalizing() -> None:
    if _probe is not None and STATE.live is not None:
        _probe.run(_note_finalizing)


def _note_finalizing() -> None:
    _look_for_exception()
    if STATE.live[Live.FINALIZING_NS] == 0:
        STATE.live[Live.FINALIZING_NS] = time.monotonic_ns()
    if not _noted or _noted["what"] == "thread":
        empty: dict[str, Any] = {"what": "shutdown", "type": "", "message": "", "code": None, "frames": []}
        _note({**empty, "at_ns": time.monotonic_ns(), **_kept("thread")})


def _note(found: dict[str, Any]) -> None:
    box = STATE.box
    if box is None:
        return
    _noted.clear()
    _noted.update(found)
    if not box.set_text(layout.ENDING, found):
        box.set_text(layout.ENDING, {**found, "frames": found["frames"][:5], "message": found["message"][:500]})
    groups.count()  # what it fell in was issued after the last heartbeat
