"""The watch process: a sibling of the job, started again if it dies, and given up in the end; the job never notices."""

import errno
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

MODULE = "diagd.daemon.watch.main"
# Seconds before each new start. One that lived LASTING_S was sound: its end counts as the first again.
BACKOFF_S = (0.2, 1.0, 3.0, 10.0)
LASTING_S = 60.0

_OF_THE_JOB = ("DIAGD_DIR", "DIAGD_JOB_ID")

Message = dict[str, Any]


def watch_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment, but for what is meant for the job's Python; PYTHONPATH is diagd's own path."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PYTHON") and name not in _OF_THE_JOB}
    # But for the first entry, which is where the command lies or the working directory.
    own = sys.path if sys.flags.safe_path else sys.path[1:]
    kept["PYTHONPATH"] = os.pathsep.join(folder for folder in own if folder and os.pathsep not in folder)
    if sys.flags.no_user_site:
        kept["PYTHONNOUSERSITE"] = "1"
    return kept


class Watcher:
    """One life of the watch process and the channel to it.

    Args:
        arguments: Its command line, without --control-fd.
        heard: Called in a thread of its own with each message, and with None when the channel closes.
        mask: The signals that were blocked when diagd began.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        mask: Iterable[int],
        heard: Callable[["Watcher", Message | None], None],
    ) -> None:
        self._heard = heard
        ours, theirs = socket.socketpair()
        self._channel = ours
        try:
            theirs.set_inheritable(True)
            command = [sys.executable, "-P", "-m", MODULE, *arguments, "--control-fd", str(theirs.fileno())]
            self.pid = _spawn(command, environ, mask, theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        threading.Thread(target=self._listen, name="diagd-control", daemon=True).start()

    def tell(self, message: Message) -> None:
        """Send a message; one that finds the channel closed or full is lost, for the supervisor waits for nobody."""
        with suppress(OSError):
            self._channel.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def kill(self) -> None:
        """End the process now."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the channel; the process takes that as its end."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()

    def _listen(self) -> None:
        with suppress(OSError), self._channel.makefile("rb") as lines:
            for line in lines:
                with suppress(ValueError):  # half a line of a process that was killed
                    message = json.loads(line)
                    if isinstance(message, dict):
                        self._heard(self, message)
        self._heard(self, None)


def _spawn(command: Sequence[str], environ: Mapping[str, str], mask: Iterable[int], keep_fd: int) -> int:
    """Start it out of the terminal's reach, holding nothing of the job's but stderr."""
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, 2, 1),  # standard output belongs to the job alone
    ]
    # A pipe of the caller's that the watch kept open would keep its reader waiting.
    actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable_fds() if fd > 2 and fd != keep_fd]
    program, words, env, blocked = command[0], list(command), dict(environ), list(mask)
    try:
        return os.posix_spawn(program, words, env, file_actions=actions, setsigmask=blocked, setsid=True)
    except NotImplementedError:  # an old C library
        return os.posix_spawn(program, words, env, file_actions=actions, setsigmask=blocked, setpgroup=0)


def _inheritable_fds() -> list[int]:
    found = []
    for name in (path.name for path in Path("/proc/self/fd").iterdir()):
        try:
            if os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError as exc:
            if exc.errno != errno.EBADF:  # the one that listed the folder
                raise
    return found
