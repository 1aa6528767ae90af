"""Run py-spy and parse its JSON: stacks from outside, also of a stopped process, where ptrace is allowed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from diagd.daemon.agent import frames
from diagd.daemon.state.model import Frame, Thread

NO_PERMISSION = (
    "no permission to read its memory: give the agent CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE, in Kubernetes "
    'securityContext.capabilities.add: ["SYS_PTRACE"]), or set /proc/sys/kernel/yama/ptrace_scope to 0'
)


class NoStack(Exception):
    """There is no stack to be had this way; the message says why."""


def program(name: str = "py-spy") -> str | None:
    """Where a program is: beside this Python, else on PATH."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def dump(pid: int, timeout_s: float = 2.0) -> tuple[Thread, ...]:
    """The threads of a process, the main one first; the process is not touched.

    Raises:
        NoStack: There is no py-spy, no permission, no Python in the process, or no answer in time.
    """
    if (path := program()) is None:
        raise NoStack("py-spy is not installed")
    command = [path, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise NoStack(f"py-spy gave no answer within {timeout_s:g} s") from None
    except OSError as exc:
        raise NoStack(f"py-spy does not start: {exc}") from exc
    if done.returncode != 0:
        raise NoStack(reason(done.stderr))
    return parse(done.stdout, pid)


def parse(text: str, pid: int) -> tuple[Thread, ...]:
    """The threads in py-spy's JSON, the main one first; diagd's own and a forked child's inherited frames left out.

    Raises:
        NoStack: It is not what py-spy writes.
    """
    try:
        threads = [_thread(entry, pid) for entry in json.loads(text)]
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise NoStack(f"py-spy's answer is not understood: {exc}") from exc
    kept = [thread for thread in threads if thread.main or not frames.is_ours(thread.frames)]
    return tuple(sorted(kept, key=lambda thread: (not thread.main, thread.tid)))


def _thread(entry: dict[str, Any], pid: int) -> Thread:
    stack = [_frame(frame) for frame in entry["frames"]]
    tid = int(entry.get("os_thread_id") or 0)
    name = entry.get("thread_name") or ""
    main = tid == pid or (tid == 0 and name == "MainThread")
    return Thread(tid, name, frames.own(stack), main, bool(entry.get("owns_gil")))


def _frame(entry: dict[str, Any]) -> Frame:
    file = entry.get("filename") or entry.get("module") or ""
    name = entry["name"]
    if file.endswith(".py") or file.startswith("<"):
        name = name.rpartition(".")[2]  # the bare name, as faulthandler gives it, or equal stacks would look different
    return frames.make(name, file, int(entry.get("line") or 0))


def reason(stderr: str, name: str = "py-spy") -> str:
    """Why such a program failed, from what it says."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if "Stack backtrace:" in lines:  # py-spy's own, of no use to anybody else
        lines = lines[: lines.index("Stack backtrace:")]
    text = "; ".join(lines) or f"{name} failed without a word"
    if any(word in text.lower() for word in ("permission denied", "operation not permitted", "eperm", "eacces")):
        return NO_PERMISSION
    return text.removeprefix("Error: ")[:300]
