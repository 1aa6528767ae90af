"""What `diagd doctor` looks at: each check says what it found, and what to do where that is not enough."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

GIB = 1024**3


class State(Enum):
    """How bad it is."""

    OK = "ok"
    ABSENT = "absent"  # healthy: it is not there, and nothing is lost
    DEGRADED = "degraded"  # diagd works and sees less
    MISSING = "missing"  # diagd cannot do its work


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's."""

    name: str
    state: State
    found: str
    help: str = ""


# Runs in the trainer's Python, which may be of any age and lack anything.
_TORCH_PROBE = """
import json, sys
out = {"python": sys.version.split()[0], "isolated": bool(sys.flags.ignore_environment)}
try:
    import torch
    out["torch"] = torch.__version__
    import torch.distributed as dist
    out["distributed"] = dist.is_available()
    out["cuda"] = torch.version.cuda
    from torch._C import _distributed_c10d as c
    out["recorder"] = hasattr(c, "_dump_fr_trace_json") or hasattr(c, "_dump_fr_trace")
    out["worker_server"] = hasattr(c, "_WorkerServer")
except ImportError as exc:
    out.setdefault("error", str(exc))
except Exception as exc:
    out["error"] = type(exc).__name__ + ": " + str(exc)
print("\\n" + json.dumps(out))
"""
_NO_PYTHON, _LONGEST = "it does not answer as a Python does", 200
_TORCH_TIMEOUT_S = 90.0  # torch's first import from a slow disk takes its time


def all_checks(python: Path | None = None) -> list[Check]:
    """All of them, in the order of the road that data takes."""
    checks = [_daemon_python(), *_training([str(python)] if python else _pythons())]
    plain: tuple[Callable[[], Check], ...] = (
        _shm, _memory_map, _ptrace, _py_spy, _signals, _cgroup, _gpu, _loopback, _state_home,
    )  # fmt: skip
    return [*checks, *(check() for check in plain)]


def _daemon_python() -> Check:
    return Check("diagd's Python", State.OK, f"{sys.version.split()[0]} ({sys.executable})")


def _pythons() -> list[str]:
    """Where the trainer's Python may be: first on PATH, else beside diagd."""
    found = [shutil.which("python"), shutil.which("python3"), sys.executable]
    return list(dict.fromkeys(path for path in found if path))


def _training(pythons: list[str]) -> list[Check]:
    tried = [(python, _torch_facts(python)) for python in pythons[:1]]
    for python in pythons[1:]:
        if "torch" in tried[-1][1]:
            break
        tried.append((python, _torch_facts(python)))
    python, facts = next((one for one in tried if "torch" in one[1]), tried[0])
    name = "trainer's Python"
    if "python" not in facts:
        return [Check(name, State.DEGRADED, f"{python}: {facts['error']}", "name it: diagd doctor --python PATH")]
    checks = [Check(name, State.OK, f"{facts['python']} ({python})")]
    if "torch" not in facts:
        help = "is that the Python that trains? name it: diagd doctor --python PATH"
        return [*checks, Check("torch", State.DEGRADED, f"not importable there: {facts.get('error')}", help)]
    cuda = f", CUDA {facts['cuda']}" if facts.get("cuda") else ", CPU build"
    checks.append(_torch(facts["torch"], f"{facts['torch']}{cuda}"))
    if not facts.get("distributed"):
        help = "this build of torch has no distributed: only a job's steps can be watched"
        return [*checks, Check("torch.distributed", State.DEGRADED, "absent", help)]
    checks.append(_feature(
        "flight recorder", facts.get("recorder"), "collectives that C++ issues (DDP's, FSDP's) are not seen one by one"
    ))  # fmt: skip
    checks.append(_feature(
        "worker server", facts.get("worker_server"), "the flight recorder cannot be read while a rank's GIL is held"
    ))  # fmt: skip
    return checks


def _torch(version: str, found: str) -> Check:
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        return Check("torch", State.DEGRADED, found, "its version cannot be told")
    if (major, minor) >= (2, 6):
        return Check("torch", State.OK, found)
    return Check("torch", State.DEGRADED, found, "diagd is made for torch 2.6 and newer")


def _feature(name: str, there: object, lost: str) -> Check:
    if there:
        return Check(name, State.OK, "available")
    return Check(name, State.DEGRADED, "absent in this torch", lost)


def _torch_facts(python: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [python, "-c", _TORCH_PROBE], capture_output=True, text=True, timeout=_TORCH_TIMEOUT_S, check=False
        )
        facts = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"importing torch took longer than {_TORCH_TIMEOUT_S:.0f} s"}
    except OSError as exc:
        return {"error": exc.strerror or str(exc)}
    except (ValueError, IndexError):
        return {"error": _said(done.stderr)}
    return facts if isinstance(facts, dict) else {"error": _NO_PYTHON}


def _said(stderr: str) -> str:
    """The last line of a program that is no Python, as far as it is a message: some repeat all that they were given."""
    last = (stderr.strip().splitlines() or [""])[-1]
    quoted = any(line and line in last for line in _TORCH_PROBE.splitlines()[1:4])
    return _NO_PYTHON + (f" ({last[:_LONGEST]})" if last and not quoted else "")


def _shm() -> Check:
    from diagd.daemon.supervisor.place import MIN_SHM_FREE_BYTES

    name, shm = "/dev/shm", Path("/dev/shm")
    elsewhere = "the boxes go to TMPDIR instead, on a disk; in a container, --shm-size=1g or --ipc=host gives more"
    if not os.access(shm, os.W_OK | os.X_OK):
        return Check(name, State.DEGRADED, "not writable" if shm.exists() else "there is none", elsewhere)
    space = os.statvfs(shm)
    free = space.f_bavail * space.f_frsize
    found = f"{free / GIB:.1f} GiB free"
    return Check(name, State.OK if free >= MIN_SHM_FREE_BYTES else State.DEGRADED, found,
                 "" if free >= MIN_SHM_FREE_BYTES else elsewhere)  # fmt: skip


def _memory_map() -> Check:
    from diagd.daemon.supervisor.place import find_place

    place, reason = find_place(f"doctor-{os.getpid()}", os.environ)
    if place is None:
        help = "without a folder that ranks and diagd can write to, a job runs unwatched; set TMPDIR to one"
        return Check("run directory", State.MISSING, reason, help)
    try:
        with (place.path / "probe").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 8 * 1024 * 1024)
        return Check("run directory", State.OK, f"{place.path.parent}")
    except OSError as exc:
        return Check("run directory", State.MISSING, f"{place.path.parent}: {exc.strerror}", "a rank's box needs 8 MiB")
    finally:
        place.remove()


def _ptrace() -> Check:
    name = "ptrace"
    if os.geteuid() == 0 and not _has_capability(19):
        return Check(name, State.DEGRADED, "root without CAP_SYS_PTRACE", _PTRACE_HELP)
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii"))
    except (OSError, ValueError):
        scope = 0
    if scope == 0 or (scope < 3 and _has_capability(19)):
        return Check(name, State.OK, "allowed (no yama restriction)" if scope == 0 else "allowed by CAP_SYS_PTRACE")
    return Check(name, State.DEGRADED, f"kernel.yama.ptrace_scope is {scope}", _PTRACE_HELP)


_PTRACE_HELP = """\
stacks then come from faulthandler alone: none of jobs started without diagd, none with native frames
on a host: sysctl kernel.yama.ptrace_scope=0; in a container: --cap-add SYS_PTRACE"""


def _has_capability(number: int) -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
        return bool(int(effective.split()[1], 16) >> number & 1)
    except (OSError, ValueError, StopIteration, IndexError):
        return False


def _py_spy() -> Check:
    beside = Path(sys.executable).with_name("py-spy")
    path = str(beside) if beside.is_file() else shutil.which("py-spy")
    help = "stacks then come from faulthandler alone; pip install py-spy"
    if path is None:
        return Check("py-spy", State.DEGRADED, "not found", help)
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as exc:
        return Check("py-spy", State.DEGRADED, f"{path} does not run: {exc}", help)
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        tried = _dump_once_up(path, sleeper.pid)
    finally:
        sleeper.communicate()
    version = done.stdout.strip()
    if tried is None:
        return Check("py-spy", State.OK, f"{version}, read a process’s stack")
    return Check("py-spy", State.DEGRADED, f"{version} cannot read a process’s stack: {tried}", _PTRACE_HELP)


def _dump_once_up(path: str, pid: int) -> str | None:
    """Try a few times: the process may not have come to its first line. None where it worked."""
    import time

    why = ""
    for _ in range(10):
        done = subprocess.run(
            [path, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=10, check=False
        )
        if done.returncode == 0 and "<module>" in done.stdout:
            return None
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        time.sleep(0.1)
    return why


def _signals() -> Check:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as exc:
        help = "exit codes of ranks are then told by their launcher alone"
        return Check("pidfd", State.DEGRADED, f"not available: {exc.strerror}", help)
    return Check("pidfd", State.OK, "available: a rank’s end is seen as it comes")


def _cgroup() -> Check:
    if Path("/sys/fs/cgroup/cgroup.controllers").is_file():
        return Check("cgroup", State.OK, "version 2")
    if Path("/sys/fs/cgroup/memory").is_dir():
        return Check("cgroup", State.OK, "version 1")
    help = "a rank that the out-of-memory killer ended is then known by its SIGKILL alone"
    return Check("cgroup", State.DEGRADED, "no memory controller to be seen", help)


def _gpu() -> Check:
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        return Check("GPU", State.DEGRADED, "nvidia-ml-py is not installed", "pip install nvidia-ml-py")
    except pynvml.NVMLError as exc:
        return Check("GPU", State.ABSENT, f"none: {exc} (healthy on a machine without one)")
    try:
        count = pynvml.nvmlDeviceGetCount()
        names = {str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i))) for i in range(count)}
        return Check("GPU", State.OK, f"{count} ({', '.join(sorted(names))})")
    except pynvml.NVMLError as exc:
        return Check("GPU", State.DEGRADED, f"the driver answers with: {exc}", "does `nvidia-smi` work?")
    finally:
        pynvml.nvmlShutdown()


def _loopback() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as exc:
        return Check("ports", State.MISSING, f"no port on loopback: {exc.strerror}", "`diagd run` needs two for itself")
    busy = [str(port) for port in (9471, 9472, 9473) if _in_use(port)]
    if busy:
        return Check("ports", State.OK, f"free on loopback; in use of the services’ own: {', '.join(busy)}")
    return Check("ports", State.OK, "free on loopback; 9471-9473, the services’ own, too")


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _state_home() -> Check:
    from diagd.daemon.cli.jobs import keeps_jobs, state_home

    home = state_home()
    there = next(path for path in (home, *home.parents) if path.exists())
    if keeps_jobs() and os.access(there, os.W_OK):
        return Check("finished jobs", State.OK, f"kept in {home}")
    help = "`diagd incidents` then knows running jobs alone, and those with --report"
    why = f"{home} cannot be written" if keeps_jobs() else f"not kept: there is no {Path.home()}"
    return Check("finished jobs", State.DEGRADED, why, help)
