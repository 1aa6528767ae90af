"""Find the ranks of jobs that were started without diagd: by what their processes look like from outside."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from diagd.daemon.agent.procfs import Procfs

# A program whose command line holds one of these carries the rank's environment but does no training.
_NO_RANKS = (
    "multiprocessing.spawn", "multiprocessing.forkserver", "multiprocessing.resource_tracker", "torch.distributed.run",
    "torch/distributed/run.py", "torchrun", "torch.distributed.launch", "accelerate", "deepspeed.launcher",
    "compile_worker", "_inductor",
)  # fmt: skip
_MOST_ABOVE = 32
_WORKER_THREADS = ("pt_data_worker", "pt_data_pin")  # names that torch gives its data workers


@dataclass(frozen=True, slots=True)
class OutsideRank:
    """A rank as its process's environment describes it."""

    rank: int | None  # None: it is none, or does not say
    pid: int
    world_size: int = 0
    local_rank: int = 0
    job: str = ""
    attempt: int = 0
    command: str = ""
    parent: int = 0  # tells jobs apart that have no name and no place to meet
    meets_at: str = ""  # MASTER_ADDR:MASTER_PORT, the same for all ranks of a job
    run_dir: Path | None = None  # where it does run under diagd
    worker_server: Path | None = None  # torch's own, where the job started one


def find_ranks(proc: Procfs | None = None) -> list[OutsideRank]:
    """The ranks on this machine, ordered by job and rank.

    A rank is a Python process with RANK and WORLD_SIZE in its environment that is neither a launcher nor a data worker;
    of a process and its descendants with the same rank, the outermost one is it.
    """
    proc = proc or Procfs()
    found = {pid: env for pid in proc.pids() if (env := _rank_environment(proc, pid)) is not None}
    ranks = [_described(proc, pid, env) for pid, env in found.items() if not _below_same_rank(proc, pid, found)]
    return sorted(ranks, key=lambda r: (r.job, r.rank or 0, r.pid))


def described(pids: list[int], proc: Procfs | None = None) -> list[OutsideRank]:
    """These processes, whatever they are: a rank's helpers inherit its environment, and are none."""
    proc = proc or Procfs()
    found = {}
    for pid in pids:
        env, above = _rank_environment(proc, pid), _above(proc, pid)
        known = {one: theirs for one in above if (theirs := _rank_environment(proc, one)) is not None}
        is_rank = env is not None and not _below_same_rank(proc, pid, {**known, pid: env})
        one = _described(proc, pid, env or proc.environment(pid))
        found[pid] = one if is_rank else replace(one, rank=None, worker_server=None)
    return list(found.values())


def find_trainings(proc: Procfs | None = None) -> list[tuple[int, str, str]]:
    """Pid, command and run directory (empty without diagd) of the Python processes that have torch loaded, whatever
    else they are; launchers left out.
    """
    proc = proc or Procfs()
    commands = {
        pid: command for pid in proc.pids() if (command := proc.command(pid)) and _may_train(proc, pid, command)
    }
    return [
        (pid, " ".join(command), proc.environment(pid).get("DIAGD_DIR", ""))
        for pid, command in commands.items()
        if b"libtorch" in proc.read(f"{pid}/maps")
    ]


def _may_train(proc: Procfs, pid: int, command: list[str]) -> bool:
    if not _is_python(proc, pid, command) or any(word in " ".join(command) for word in _NO_RANKS):
        return False
    stat = proc.stat(pid)
    return stat is not None and stat.state not in "ZX" and not stat.name.startswith(_WORKER_THREADS)


def _rank_environment(proc: Procfs, pid: int) -> dict[str, str] | None:
    if pid == os.getpid():
        return None
    command = proc.command(pid)
    if not command or not _may_train(proc, pid, command):
        return None
    env = proc.environment(pid)
    return env if env.get("RANK", "").isdecimal() and env.get("WORLD_SIZE", "").isdecimal() else None


def _is_python(proc: Procfs, pid: int, command: list[str]) -> bool:
    return any(Path(program).name.startswith("python") for program in (proc.program(pid), command[0]))


def _below_same_rank(proc: Procfs, pid: int, found: dict[int, dict[str, str]]) -> bool:
    """Whether an ancestor is the same rank: then this is a worker or a tool of it."""
    rank = found[pid]["RANK"]
    return any(found[above]["RANK"] == rank for above in _above(proc, pid) if above in found)


def _above(proc: Procfs, pid: int) -> list[int]:
    """Its parent, and on up to the first process."""
    found: list[int] = []
    while len(found) < _MOST_ABOVE and (stat := proc.stat(found[-1] if found else pid)) is not None and stat.parent > 1:
        found.append(stat.parent)
    return found


def _described(proc: Procfs, pid: int, env: dict[str, str]) -> OutsideRank:
    return OutsideRank(
        rank=int(env["RANK"]) if env.get("RANK", "").isdecimal() else None,
        pid=pid,
        world_size=_number(env.get("WORLD_SIZE"), 0),
        local_rank=_number(env.get("LOCAL_RANK"), 0),
        job=env.get("DIAGD_JOB_ID") or env.get("SLURM_JOB_ID") or env.get("TORCHELASTIC_RUN_ID") or "",
        attempt=_number(env.get("TORCHELASTIC_RESTART_COUNT"), 0),
        command=" ".join(proc.command(pid)),
        parent=stat.parent if (stat := proc.stat(pid)) is not None else 0,
        meets_at=f"{env.get('MASTER_ADDR', '')}:{env['MASTER_PORT']}" if env.get("MASTER_PORT") else "",
        run_dir=Path(env["DIAGD_DIR"]) if env.get("DIAGD_DIR") else None,
        worker_server=Path(env["TORCH_WORKER_SERVER_SOCKET"]) if env.get("TORCH_WORKER_SERVER_SOCKET") else None,
    )


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdecimal() else otherwise
