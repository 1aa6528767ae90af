"""Stacks with the frames of compiled code, by pystack, several times quicker with torch, or py-spy."""

import subprocess

from diagd.daemon.agent import pyspy
from diagd.daemon.agent.pyspy import NoStack


def text(pid: int, timeout_s: float) -> str:
    """The process's native and Python frames; it is paused while they are read, and goes on also where time runs out.

    Raises:
        NoStack: Neither program is there, or both fail.
    """
    if path := pyspy.program("pystack"):
        try:
            return _output([path, "--no-color", "remote", "--native", str(pid)], timeout_s)
        except NoStack as exc:
            if "within" in str(exc):
                raise  # there is no time left for another try
    if path := pyspy.program("py-spy"):
        return _output([path, "dump", "--native", "--pid", str(pid)], timeout_s)
    raise NoStack("neither pystack nor py-spy is installed")


def _output(command: list[str], timeout_s: float) -> str:
    name = command[0].rpartition("/")[2]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise NoStack(f"{name} gave no answer within {timeout_s:.1f} s") from None
    except OSError as exc:
        raise NoStack(f"{name} does not start: {exc}") from exc
    if done.returncode != 0 or not done.stdout.strip():
        raise NoStack(pyspy.reason(done.stderr, name))
    return done.stdout
