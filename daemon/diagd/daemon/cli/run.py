"""`diagd run`: start a job and watch it."""

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from diagd.daemon.cli.reportdir import ReportDir
    from diagd.daemon.supervisor import Plan
    from diagd.probes.faults import Fault

_NOTHING_TO_RUN = "Which command? For example: diagd run -- torchrun --nproc-per-node 8 train.py"

_LAST_PORT = 65535


class Seconds(click.ParamType[float]):
    """A finite number of seconds above 0."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """From text; also `90s`."""
        try:
            seconds = float(str(value).removesuffix("s"))
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds) or seconds <= 0:
            self.fail(f"{value!r} is not a number of seconds above 0, such as 30", param, ctx)
        return seconds


class FaultText(click.ParamType["Fault"]):
    """A fault to plant, in the grammar of diagd.probes.faults."""

    name = "fault"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Fault":
        """From text."""
        from diagd.probes.faults import FaultError, parse

        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # click converts a default twice
        try:
            return parse(value)
        except FaultError as exc:
            self.fail(str(exc), param, ctx)


def _address(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise click.BadParameter(f"{value!r} is not of the form HOST:PORT, such as monitor-1:9473")
    if not 0 < int(port) <= _LAST_PORT:
        raise click.BadParameter(f"{value!r}: there is no port {port}, ports go from 1 to {_LAST_PORT}")
    return value


_Value = TypeVar("_Value", str, Path)


def _given(ctx: click.Context, param: click.Parameter, value: _Value | None) -> _Value | None:
    if value is not None and not str(value).strip():
        raise click.BadParameter("it is empty: a variable in the command that is not set?")
    if value is not None and str(value).startswith("-"):
        raise click.BadParameter(f"its value is missing before {value}")
    return value


def _folder(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    named = _given(ctx, param, value)
    return Path(named) if named is not None else None


@click.command(
    "run",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.option(
    "--report",
    callback=_folder,
    metavar="DIR",
    help="Write report.json, report.html and dumps to this folder.",
)
@click.option(
    "--hang-after",
    type=Seconds(),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a rank may show no sign of life before it counts as hung. What can be proved is said at once.",
)
@click.option(
    "--on-hang",
    type=click.Choice(["dump", "abort", "restart"]),
    default="dump",
    show_default=True,
    help="On a hang, dump and: go on; end the job (exit code 86); or end the culprit, so that its launcher restarts.",
)
@click.option(
    "--aggregator",
    metavar="HOST:PORT",
    callback=_address,
    help="Report to this aggregator, for jobs of several nodes; without it one is embedded.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    callback=_given,
    metavar="FILE",
    help="Keep all that the ranks report, for replay.",
)
@click.option(
    "--job-id",
    metavar="NAME",
    callback=_given,
    help="Call the job this. [default: Slurm's, torchrun's, or a new name]",
)
@click.option(
    "--inject",
    type=FaultText(),
    multiple=True,
    envvar="DIAGD_INJECT",
    metavar="FAULT",
    help="For drills: DISTURB the job by planting this fault, such as hang:rank=3,step=10 (all kinds above).",
)
@click.option(
    "--ledger-at-start",
    is_flag=True,
    help="Have ranks digest what they begin with, before their first step, for `diagd ledger save FILE --step 0`.",
)
@click.option(
    "--trace-allocations",
    is_flag=True,
    help="Once a rank's memory grows, have its Python trace for 30 steps where it allocates; they take much longer.",
)
@click.option("-q", "--quiet", is_flag=True, help="No summary when all went well.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND…")
def command(words: tuple[str, ...], quiet: bool, report: Path | None, **options: Any) -> int:
    """Run COMMAND unchanged and say why it hangs, dies or stops making progress.

    Works for torchrun, python -m torch.distributed.run, accelerate launch, deepspeed, a script that spawns its own
    ranks, and a single process. Output, input, signals and exit code pass through as they are; what diagd finds goes
    to standard error and to the report.

    \b
    Examples:
      diagd run -- torchrun --nproc-per-node 8 train.py --lr 3e-4
      diagd run --report out --on-hang abort -- accelerate launch train.py
      DIAGD_DISABLE=1 diagd run -- python train.py      (the probes stay out)

    --inject is the one thing in diagd that is meant to disturb a job: it shows what diagd says of a fault, on a job
    that may be lost. The fault acts when the rank has completed that training step (10, where none is named); steps
    count from 1.

    \b
      hang:rank=3,step=10               sleeps for ever in its own code
      gil:rank=1,step=10                waits for ever in C code that holds the GIL
      data:rank=1,step=20               waits for ever for its DataLoader's next batch
      mismatch:rank=1,step=12           enters an all_reduce of another size on the default group
      leave:rank=1,step=12              destroys its process groups and never comes to what others wait in
      cycle:rank=1,step=12              reduces over two groups in another order than all others
      unsent:rank=1,step=12             does not send what the rank after it waits to receive
      store:rank=1,step=12              waits for a key of the store that nobody sets
      slow:rank=0,2-3,factor=2,step=20-60   takes factor times as long for these steps (20- to the end)
      stop, kill, raise, exit[,code=3]  such as stop:rank=0,step=15

    \b
    Exit code: the command's own, 128+N where signal N ended it; 86 where diagd ended the job;
      85 where diagd could not start; 127 no such command; 126 it cannot be executed; 2 where these options are wrong,
      before anything is started.
    """
    from diagd.daemon.cli.afterwards import finish
    from diagd.daemon.cli.reportdir import open_report_dir
    from diagd.daemon.supervisor import CannotStart, supervise

    if not words:
        raise click.UsageError(_NOTHING_TO_RUN)
    folder = open_report_dir(report) if report is not None else None
    _check_record(options["record"])
    plan = plan_job(words, folder, **options)
    try:
        outcome = supervise(plan, _say)
    except CannotStart as exc:
        if plan.place:
            plan.place.remove()
        raise DiagdError(exc.message, help=exc.help, exit_code=exc.exit_code) from exc
    finish(plan, outcome, folder, _say, quiet=quiet)
    return outcome.exit_code


def _check_record(path: Path | None) -> None:
    """After three days of training is too late to learn that nothing was recorded."""
    from diagd.daemon.record.record import NotARecord, RecordWriter

    if path is None:
        return
    try:
        RecordWriter(path).close()
    except (OSError, NotARecord) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it holds something else, and is not overwritten"
        raise DiagdError(
            f"--record {path}: cannot be written ({why})",
            help="name a file in a folder that you may write to, such as --record ./job.diagd",
            exit_code=2,
        ) from exc


def _say(line: str) -> None:
    """Print a line of diagd's own; a full disk or a closed stream must not cost the job its exit code."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"diagd: {line}", err=True)


def plan_job(words: tuple[str, ...], folder: "ReportDir | None", *, job_id: str | None, **options: Any) -> "Plan":
    """What the options ask for; says what a person should know before the job starts."""
    from diagd.daemon.cli.jobs import fresh_home, note_home
    from diagd.daemon.cli.reportdir import earlier_files
    from diagd.daemon.supervisor import Plan, find_place, job_id_of

    environ = dict(os.environ)
    if job_id is not None:
        environ["DIAGD_JOB_ID"] = job_id
    if faults := " ".join(map(str, options["inject"])):
        environ["DIAGD_INJECT"] = faults
        _say(f"this is a drill, which disturbs the job: {faults}")
    if options.get("ledger_at_start"):
        environ["DIAGD_LEDGER"] = "start"
    if options.get("trace_allocations"):
        environ["DIAGD_TRACE"] = "allocations"
    name = job_id_of(words, environ)
    place, reason = find_place(name, environ)
    if place is None:
        _say(f"the job runs on unwatched: there is no place for the ranks' boxes ({reason})")
    elif outer := _outer(environ):
        _say(outer)
    elif place.twin is not None:
        _say(_twin(name, place.path.name, place.twin, options["aggregator"]))
        name = name if options["aggregator"] else place.path.name  # its report, metrics and state are its own
    if folder is not None and (line := earlier_files(folder)):
        _say(line)
    if folder is not None:
        note_home(place, folder.path, name)
    return Plan(
        command=words,
        environ=environ,
        bootstrap=_bootstrap(),
        job_id=name,
        place=place,
        report_dir=folder.path if folder is not None else fresh_home(place),
        file_prefix=folder.prefix if folder is not None else "",
        hang_after_s=options["hang_after"],
        on_hang=options["on_hang"],
        aggregator=options["aggregator"],
        record=options["record"].absolute() if options["record"] else None,
    )


def _outer(environ: Mapping[str, str]) -> str:
    """That another `diagd run` has started this one, which then has no ranks of its own; empty where none has."""
    from diagd.daemon.supervisor import read_run_file

    place = Path(environ.get("DIAGD_DIR") or os.devnull)
    facts = read_run_file(place)
    if not facts:
        return ""
    with contextlib.suppress(OSError):  # for its summary, as ranks without probes leave it
        (place / f"{os.getpid()}.off").write_text("it is a `diagd run` of its own, to which its ranks report\n")
    return (
        f"this was started by another `diagd run` (job {facts.get('job_id')}, process {facts.get('supervisor_pid')}): "
        "the ranks report to this one alone, and one of the two is enough"
    )


def _twin(name: str, own: str, twin: Path, aggregator: str | None) -> str:
    """That a job of the same name runs here, and what to do about it."""
    from diagd.daemon.supervisor import read_run_file

    facts = read_run_file(twin)
    other = f"another job called {name} runs on this node (process {facts.get('supervisor_pid', 'not known')})"
    if aggregator is not None:
        return f"{other}: {aggregator} takes both for one job. If they are two, give each its own --job-id"
    advice = "Give each job its own --job-id, and tasks of one job one --aggregator"
    return f"{other}: here this one is called {own}, as in `diagd status --job {own}`. {advice}"


def _bootstrap() -> Path:
    """The folder that goes first on the ranks' PYTHONPATH; found without importing the probes."""
    from importlib.util import find_spec

    spec = find_spec("diagd.probes")
    if spec is None or not spec.submodule_search_locations:
        raise DiagdError("the package diagd.probes is not installed", help="install diagd again", exit_code=85)
    return Path(next(iter(spec.submodule_search_locations))) / "bootstrap"
