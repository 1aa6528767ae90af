"""When this process counts as a rank, and opening its box then."""

import os
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path

from diagd.probes import cost, start
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter, start_ticks
from diagd.probes.guard import Probe
from diagd.probes.identity import write_identity
from diagd.probes.settings import RANK_PID
from diagd.probes.state import STATE

_LAUNCHERS = frozenset({"torchrun", "deepspeed", "accelerate", "accelerate-launch", "ds", "torchx"})
_LAUNCHER_MODULES = ("torch.distributed.", "accelerate.commands.", "deepspeed.launcher.", "torch._inductor.")
# Probes that begin with the box, not with a module.
_ON_OPENING = ("garbage", "heartbeat", "stacks", "output", "ending")

_hooked = False
_refused = False  # no box could be made, in this process


def consider_candidate() -> None:
    """torch.distributed was loaded: where RANK is set, this is likely to become a rank; show that it is on its way."""
    if "RANK" in os.environ and STATE.box is None and not (is_launcher() or _is_child() or _belongs_to_rank()):
        _open()


def consider_failing_child() -> None:
    """A process that the script has started and told its RANK fails before it joins: its end explains others' waits."""
    if "RANK" in os.environ and STATE.box is None and _is_child() and _is_rank_by_script() and not _belongs_to_rank():
        _open()


def become_rank() -> bool:
    """init_process_group is being entered: from now on this is a rank. False where there can be no box."""
    _open()
    if STATE.box is not None and not STATE.is_rank:
        _promote()
    return STATE.box is not None


def become_lone_rank() -> bool:
    """A first optimizer step without process groups: rank 0 of 1, unless it happens in some other rank's child."""
    if STATE.forked or _is_child() or _belongs_to_rank():
        return False
    if not become_rank():
        return False
    if "RANK" not in os.environ:
        write_identity(rank=0, local_rank=0, world_size=1)
    return True


def _promote() -> None:
    STATE.is_rank = True
    STATE.live[Live.IS_RANK] = 1
    write_identity()


def _open() -> None:
    """Make the box, in the run directory or else in the temporary one; without one the job runs on unwatched."""
    global _refused
    if STATE.box is not None or _refused or not STATE.settings.folder:
        return
    reasons = []
    for folder in (STATE.settings.folder, _fallback_folder()):
        try:
            _use(_make_box(Path(folder)))
            return
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror or error}")
    _refused = True
    _say_off("no box could be made: " + "; ".join(reasons))


def _fallback_folder() -> str:
    return os.path.join(tempfile.gettempdir(), f"diagd-{os.getuid()}", STATE.settings.job or "job")


def _make_box(folder: Path) -> BoxWriter:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise OSError(0, "belongs to another user")
    path = folder / f"{os.getpid()}-{start_ticks()}.box"
    path.unlink(missing_ok=True)  # of this very process, before it replaced itself by exec
    return BoxWriter(path)


def _use(box: BoxWriter) -> None:
    STATE.live = box.live
    STATE.box = box
    STATE.trainer = threading.get_ident()
    now = time.monotonic_ns()
    STATE.live[Live.MAIN_THREAD] = threading.main_thread().native_id or 0
    STATE.live[Live.PHASE_NS] = STATE.live[Live.HEARTBEAT_NS] = STATE.live[Live.STEP_STARTED_NS] = now
    os.environ[RANK_PID] = str(os.getpid())
    _hook_fork()
    write_identity()
    STATE.record(True)
    for name in _ON_OPENING:
        probe = start.SWITCHES.get(name)
        if probe is not None and not probe.tripped:
            probe.run(_begin, name, probe)


def _begin(name: str, probe: Probe) -> None:
    import_module(f"diagd.probes.{name}").begin(probe)


def _hook_fork() -> None:
    global _hooked
    if not _hooked:
        _hooked = True
        os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """In a forked child: it would write its parent's box. It may become a rank of its own by init_process_group."""
    global _refused
    _refused = False
    STATE.record(False)
    STATE.forget()
    cost.forget()
    STATE.forked = True
    STATE.notes.clear()
    if "diagd.probes.stacks" in sys.modules:
        sys.modules["diagd.probes.stacks"].leave_sigterm()


def _say_off(reason: str) -> None:
    try:
        Path(STATE.settings.folder, f"{os.getpid()}.off").write_text(reason + "\n")
    except OSError:
        pass  # then nobody can be told


def is_launcher() -> bool:
    """Whether this process starts ranks, or compiles for them, and is none."""
    words = sys.orig_argv[1:]
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    script = next((word for word in words if not word.startswith("-")), "")
    return (
        (module + ".").startswith(_LAUNCHER_MODULES)
        or os.path.basename(script) in _LAUNCHERS
        or "compile_worker" in script
    )


def _is_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _is_rank_by_script() -> bool:
    """Not a worker (these are daemons), nor the child of a process that a launcher made a rank, whose RANK it has."""
    if "torch.distributed" not in sys.modules or sys.modules["multiprocessing.process"].current_process().daemon:
        return False
    try:
        return not any(
            word.startswith(b"RANK=") for word in Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
        )
    except OSError:
        return False


def _belongs_to_rank() -> bool:
    return os.environ.get(RANK_PID, str(os.getpid())) != str(os.getpid())
