"""How this process's children ended, by whoever waited for them: an onlooker cannot ask the kernel for that."""

import json
import os
import time
from typing import Any

from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.state import STATE

_MAX_LINES = 4096
_patches = Patches()
_lines = 0


def install(probe: Probe, module: Any) -> None:
    """subprocess, or a way of multiprocessing to start processes, is there."""
    popen = module.Popen
    if module.__name__ == "subprocess":
        _patches.replace(popen, "_handle_exitstatus", wrapper(probe, _before, _after, _ignore))
    elif "poll" in vars(popen):
        _patches.replace(popen, "poll", wrapper(probe, _before_poll, _after_poll, _ignore))


def remove() -> None:
    """Put the original methods back."""
    _patches.undo()


def _ignore(*_: Any) -> None:
    """There is nothing to do afterwards."""


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0].pid, args[1] if len(args) > 1 else kwargs.get("sts")


def _after(token: Any, result: Any) -> None:
    pid, status = token
    if not os.WIFSTOPPED(status):
        _append(pid, status)


def _before_poll(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if getattr(args[0], "returncode", 0) is None else None


def _after_poll(popen: Any, result: Any) -> None:
    code = popen.returncode
    if code is not None:
        _append(popen.pid, -code if code < 0 else code << 8)


def _append(pid: int, status: int) -> None:
    """Add a line; `status` is what wait() gives."""
    global _lines
    _lines += 1
    if _lines > _MAX_LINES:
        return
    line = json.dumps({"pid": pid, "status": status, "at_ns": time.monotonic_ns()}) + "\n"
    path = os.path.join(STATE.settings.folder, f"{os.getpid()}.exits")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)
