"""Find the job that a person means, running or finished, and read what is known of it."""

import json
import os
import shlex
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from diagd.daemon.agent.discovery import Job
    from diagd.daemon.supervisor import Place, Plan

KEPT_JOBS = 20
KEPT_S = 24 * 3600.0
_ELSEWHERE = "elsewhere.json"
_NO_JOB = "start one with `diagd run -- COMMAND…`; `diagd dump` also finds the ranks of a job that runs without diagd"


def state_home() -> Path:
    """Where the reports of finished jobs are kept."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".local/state") / "diagd"


def keeps_jobs() -> bool:
    """Whether there is a place for what finished jobs leave; of an account without a home none is made."""
    return state_home().parent.is_dir() or Path.home().is_dir()


def read_report(place: Path) -> dict[str, Any] | None:
    """The report at a path: the file, or the folder that holds it; None where there is none or it is damaged."""
    path = place / "report.json" if place.is_dir() else place
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) and report.get("schema") == "diagd.report/1" else None


def kept_home(place: "Place") -> Path:
    """The job's own folder there; each node has its own, since a home is often shared by all of them."""
    return state_home() / f"{place.path.name}{_node()}"


def _node() -> str:
    return f"@{os.uname().nodename.partition('.')[0]}"


def kept_report(run_dir: Path) -> dict[str, Any] | None:
    """The report that a job of this run directory has left."""
    return read_report(state_home() / f"{run_dir.name}{_node()}")


def fresh_home(place: "Place | None") -> Path | None:
    """A folder for the report of a job for which none was asked; on a disk, since dumps must outlive the job."""
    if place is None:
        return None
    home = kept_home(place)
    try:
        shutil.rmtree(home, ignore_errors=True)  # of an earlier job of this name
        if not keeps_jobs():
            return place.path / "report"
        home.mkdir(parents=True)
    except OSError:  # a read-only home: what is found is still said on stderr
        return place.path / "report"
    return home


def note_home(place: "Place | None", report_dir: Path, job_id: str) -> None:
    """Say where the job's report will be, also for when nobody is left to keep it; of an earlier job nothing stays."""
    if place is None or not keeps_jobs():
        return
    with suppress(OSError):  # a read-only home
        home = kept_home(place)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        said = {"folder": str(report_dir.absolute()), "job": job_id}
        (home / _ELSEWHERE).write_text(json.dumps(said), encoding="utf-8")


def kept_in(folder: Path) -> Path:
    """Where the report of the job of this folder is: there, or where it was to be written."""
    try:
        said = json.loads((folder / _ELSEWHERE).read_text(encoding="utf-8"))
        place, job_id = Path(said["folder"]), said["job"]
    except (OSError, ValueError, LookupError, TypeError):
        return folder
    if (folder / "report.json").exists():
        return folder
    report = read_report(place)
    return place if report is not None and report["job"]["id"] == job_id else folder


def keep_finished(plan: "Plan", report: Mapping[str, Any] | None) -> list[str]:
    """Save what a finished job leaves, so that `diagd incidents` knows it; lines that say where things are."""
    assert plan.place is not None  # noqa: S101 - the caller's condition
    lines = []
    with suppress(OSError):
        traces = plan.place.path / "fr"
        if plan.report_dir and traces.is_dir() and any(traces.iterdir()):
            prefix = plan.file_prefix.rstrip("-")
            target = plan.report_dir / (f"fr-{prefix}" if prefix else "fr")
            shutil.copytree(traces, target, dirs_exist_ok=True)
            lines.append(f"torch’s own traces are kept in {target}")
    if not keeps_jobs():
        if report is not None and report["incidents"] and plan.report_dir == plan.place.path / "report":
            lines.append(f"the report is not kept: there is no {Path.home()}; `diagd run --report DIR` keeps it")
        return lines
    with suppress(OSError):
        kept = kept_home(plan.place)
        if report is not None and kept != plan.report_dir:
            kept.mkdir(parents=True, exist_ok=True)
            of = {"folder": str(Path(plan.report_dir).absolute())} if plan.report_dir else {}
            (kept / "report.json").write_text(json.dumps({**report, **of}), encoding="utf-8")
        _forget_old()
    return lines


def _forget_old() -> None:
    ours = {path: path.stat().st_mtime for path in state_home().iterdir() if path.name.endswith(_node())}
    for path in sorted(ours, key=lambda path: -ours[path])[KEPT_JOBS:]:
        if time.time() - ours[path] > KEPT_S:  # a younger one may be of a job that still runs
            shutil.rmtree(path, ignore_errors=True)


def running_jobs() -> list["Job"]:
    """The jobs of this user that run now, newest first."""
    from diagd.daemon.agent.discovery import find_jobs

    return [job for job in find_jobs() if is_running(job)]


def is_running(job: "Job") -> bool:
    """Whether any of its ranks lives, or what started it."""
    return job.alive or (job.info.get("exit_code") is None and supervisor_lives(job.info))


def supervisor_lives(info: Mapping[str, Any]) -> bool:
    """Whether what started the job still runs; one that has ended and that nobody has waited for does not."""
    from diagd.daemon.agent.procfs import Procfs

    pid = info.get("supervisor_pid")
    stat = Procfs().stat(pid) if isinstance(pid, int) else None
    return stat is not None and stat.state not in "ZX"


def job_name(job: "Job") -> str:
    """What a person calls it."""
    return str(job.info.get("job_id") or job.job)


def find_job(name: str | None) -> "Job":
    """The running job of that name, or the only one whose name begins so; without a name, the only one.

    Raises:
        DiagdError: There is none, or several and no name.
    """
    jobs = running_jobs()
    if name is not None:
        named = [job for job in jobs if name in (job_name(job), job.job)]
        begun = [job for job in jobs if name and any(n.startswith(name) for n in (job_name(job), job.job))]
        if not named and len(begun) == 1:
            return begun[0]
        if not named:
            raise DiagdError(f"no running job is called {name}", help=_choices(jobs) or _none(), exit_code=4)
        return min(named, key=lambda job: job.job != name)  # the folder's name is one job's alone
    if not jobs:
        raise DiagdError("no job runs under diagd on this machine", help=_none(), exit_code=4)
    if len(jobs) > 1:
        raise DiagdError("several jobs run here: say which", help=_choices(jobs), exit_code=2)
    return jobs[0]


def _none() -> str:
    from diagd.daemon.cli.choices import without_diagd

    return without_diagd() or _NO_JOB


def _choices(jobs: list["Job"]) -> str:
    """A line for each; of two jobs of one name, the second has a folder's name of its own."""
    names = [job_name(job) for job in jobs]
    return "\n".join(
        f"--job {shlex.quote(name if names.count(name) == 1 else job.job)}    {_command(job)}"
        for job, name in zip(jobs, names, strict=True)
    )


def _command(job: "Job") -> str:
    return shlex.join(map(str, job.info.get("command", [])))[:80]


def fetch(address: str, path: str, timeout_s: float = 3.0, method: str = "GET") -> Any:
    """JSON from a watch's HTTP server.

    Raises:
        OSError: It does not answer.
        ValueError: It answers something else.
    """
    from urllib.request import ProxyHandler, Request, build_opener

    direct = build_opener(ProxyHandler({}))  # a cluster's http_proxy leads away from this machine
    with direct.open(Request(f"http://{address}{path}", method=method), timeout=timeout_s) as answer:
        return json.load(answer)
