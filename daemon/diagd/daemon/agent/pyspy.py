"""Run py-spy and parse its JSON: stacks from outside, also of a stopped process, where ptrace is allowed."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from diagd.daemon.agent import frames
from diagd.daemon.state.model import Frame, Thread

NO_PERMISSION = (
    "no permission to read its memory: give the agent CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE, in Kubernetes "
    'securityContext.capabilities.add: ["SYS_PTRACE"]), or set /proc/sys/kernel/yama/ptrace_scope to 0'
)


SAMPLE_RATE = 25  # a second: enough to tell where most of the time goes, at a few percent of a core for that second
SAMPLE_LIMIT_S = 2.5
_SAMPLED = re.compile(r"(?P<name>.+?) \((?P<file>.+):(?P<line>\d+)\)")


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


def sample(pid: int, rate: int = SAMPLE_RATE) -> list[tuple[tuple[Frame, ...], int]]:
    """Where the main thread was during a second, also asleep, with how often; the process goes on meanwhile.

    Raises:
        NoStack: There is no py-spy, no permission, or no answer in time.
    """
    if (path := program()) is None:
        raise NoStack("py-spy is not installed")
    with tempfile.TemporaryDirectory(prefix="diagd-") as folder:
        file = Path(folder) / "samples"
        command = [
            path, "record", "--nonblocking", "--idle", "--threads", "--full-filenames", "--format", "raw",
            "--duration", "1", "--rate", str(rate), "--output", str(file), "--pid", str(pid),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SAMPLE_LIMIT_S, check=False)
            text = file.read_text(encoding="utf-8", errors="replace")
        except (subprocess.TimeoutExpired, OSError) as exc:
            raise NoStack(f"py-spy took no samples: {exc}") from None
    if done.returncode != 0:
        raise NoStack(reason(done.stderr))
    return parse_samples(text, pid)


def parse_samples(text: str, pid: int) -> list[tuple[tuple[Frame, ...], int]]:
    """The main thread's places in py-spy's raw form (a line each: frames, outermost first, and a count)."""
    found = []
    for line in text.splitlines():
        frames_text, _, times = line.rpartition(" ")
        first, *rest = frames_text.split(";")
        if first.startswith(f"thread ({pid})") and times.isdecimal():
            read = [frame for part in reversed(rest) if (frame := _sampled_frame(part)) is not None]
            if read:
                found.append((frames.own(read), int(times)))
    return sorted(found, key=lambda place: -place[1])


def _sampled_frame(text: str) -> Frame | None:
    """One such frame: "Class.function (/path/file.py:12)"; None where it is none."""
    matched = _SAMPLED.fullmatch(text.strip())
    if matched is None:
        return None
    return _frame({"name": matched["name"], "filename": matched["file"], "line": matched["line"]})


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
