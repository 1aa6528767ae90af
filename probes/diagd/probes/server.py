"""torch's own worker server on a unix socket: hands out the flight recorder from a C++ thread, without the GIL."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diagd.probes.guard import Probe
from diagd.probes.identity import write_identity
from diagd.probes.state import STATE

_LOG_LEVELS = ("FLAGS_caffe2_log_level", "_ZN3c1022FLAGS_caffe2_log_levelE")  # its name differs between versions
_SILENT = 3
_ACTION = 1024  # bytes, more than any struct sigaction has
_MAX_PATH = 100  # bytes that the kernel takes for a unix socket's address, a little less

_started_by = 0
_server: Any = None


def begin(probe: Probe) -> None:
    """Start it, once for each process."""
    global _started_by
    if _started_by == os.getpid() or STATE.box is None:
        return
    _started_by = os.getpid()
    path = str(STATE.box.path.parent / f"{os.getpid()}.fr.sock")
    reason = _start(path)
    if reason:
        STATE.note(f"no flight recorder by socket: {reason}")
    else:
        write_identity(fr_socket=path)


def remove() -> None:
    """Stop it, in the process that started it."""
    if _server is not None and _started_by == os.getpid():
        _server.shutdown()


def _start(path: str) -> str:
    """Start it at `path`; why not, where it is not."""
    global _server
    make = getattr(sys.modules.get("torch._C._distributed_c10d"), "_WorkerServer", None)
    if make is None:
        return "this torch has no worker server"
    if len(os.fsencode(path)) > _MAX_PATH:
        return f"{path} is too long for a socket"
    level = _log_level()
    if level is None:
        return "its greeting on stderr cannot be silenced"
    Path(path).unlink(missing_ok=True)
    before = level.value
    level.value = _SILENT
    try:
        with _own_pipes():
            _server = make(path, -1)
    except (RuntimeError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        level.value = before
    # Its destructor would shut the socket down in the parent too, when a forked child exits: it must never run.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_server))
    return ""


@contextlib.contextmanager
def _own_pipes() -> Iterator[None]:
    """What the server does about SIGPIPE stays with it: it ignores the signal in the whole process.

    A script that has given the signal its default action means to end when nobody reads on. The server's threads, which
    are begun in here, block it for themselves: an agent that hangs up in the middle of an answer ends nothing.
    """
    library = ctypes.CDLL(None)
    action = ctypes.create_string_buffer(_ACTION)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    known = library.sigaction(int(signal.SIGPIPE), None, action) == 0
    try:
        yield
    finally:
        if known:
            library.sigaction(int(signal.SIGPIPE), action, None)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _log_level() -> Any:
    torch = sys.modules["torch"]
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(str(torch.__file__)), "lib", "libc10.so"))
    except OSError:
        return None
    for name in _LOG_LEVELS:
        try:
            return ctypes.c_int.in_dll(library, name)
        except ValueError:
            continue
    return None
