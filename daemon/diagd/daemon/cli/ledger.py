"""`diagd ledger`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagd.daemon.cli.run import Seconds
from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from diagd.daemon.analyze.ledgers import Comparison

_UNREADABLE = 2
_SAMPLED_ALONE = 3
LIMIT_S = 120.0


@click.group("ledger")
def command() -> None:
    """Save digests of what the tensors of a running job hold, and compare them with another job or a checkpoint."""


@command.command("save")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--job", metavar="NAME", help="Which job; needed only where several run here.")
@click.option(
    "--step",
    type=click.IntRange(0),
    metavar="N",
    help="What tensors hold after step N of this run, such as that of the next checkpoint; 0: before the first, where "
    "it was started with `diagd run --ledger-at-start`. [default: a step just ahead]",
)
@click.option("--limit", type=Seconds(), default=LIMIT_S, metavar="SECONDS", help="Wait so long. [default: 120]")
def save(file: Path, job: str | None, step: int | None, limit: float) -> int:
    """Write the ledger of a running job to FILE: each tensor's type, shape and placement, and digests.

    All ranks are asked what their parameters, buffers and optimizer state hold after one and the same step, which lies
    just ahead. Of a split tensor each tells what its part adds up to, so that the ledger has one digest of the whole:
    that of another number of ranks, another wrapper, or a checkpoint. The job is held up once, for as long as its ranks
    take to read their tensors.

    With it go the digests of what ranks hold that diagd takes by itself, in jobs of two ranks and more: before the
    first step, after the next two, and then parameters and buffers once in 32 steps, frozen parameters and optimizer
    state once in 64.

    \b
    Exit code: 0 the ledger is of one step; 3 no step came within the limit, and it holds what was sampled before;
      4 there is no such job.
    """
    from diagd.daemon.cli.jobs import fetch, find_job
    from diagd.daemon.cli.ledger_save import of_one_step, path_of

    found = find_job(job)
    address = found.info.get("http")
    _check_writable(file)  # before the ranks are held up for it
    try:
        if not address:
            raise OSError("it has no aggregator on this machine")
        why = of_one_step(address, step, limit)
        document = fetch(address, path_of(step), timeout_s=60.0)
    except (OSError, ValueError) as exc:
        if not found.alive:
            help = "ask while it makes steps: --step N names one that is still to come"
            raise DiagdError("the job has ended meanwhile, and told nothing", help=help, exit_code=4) from exc
        raise DiagdError(f"the job's aggregator does not answer: {exc}", help="try again", exit_code=4) from exc
    if not document.get("tensors"):
        raise DiagdError(
            f"the job has no ledger (yet){f': {why}' if why else ''}",
            help="tensors are written down at the first step of an optimizer",
            exit_code=3,
        )
    try:
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as exc:
        raise _unwritable(file, exc) from exc
    for line in _written(document, file, why):
        click.echo(line)
    return _SAMPLED_ALONE if why else 0


def _check_writable(file: Path) -> None:
    there = file.exists()
    try:
        file.open("a").close()
        if not there:
            file.unlink()
    except OSError as exc:
        raise _unwritable(file, exc) from exc


def _unwritable(file: Path, exc: OSError) -> DiagdError:
    return DiagdError(f"{file}: cannot be written ({exc.strerror})", help="name another file", exit_code=2)


def _written(document: dict[str, Any], file: Path, why: str) -> list[str]:
    tensors = document["tensors"]
    if why:
        said = f"not of one step: {why}; it holds what was sampled before"
    else:
        lacking = [one for one in tensors if not one.get("sums")]
        said = f"after step {document['step']}" if document["step"] else "before the first step"
        if lacking:
            named = "; ".join(f"{one['name']}: {one.get('why') or 'no rank has told of it'}" for one in lacking[:3])
            said += f", {len(lacking)} of them without what they hold ({named})"
    return [*document.get("not_told", ()), f"{len(tensors)} tensors of job {document['job']} in {file}, {said}"]


@command.command("compare")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option(
    "--step",
    type=click.IntRange(0),
    metavar="N",
    help="Judge a ledger by what it holds after step N. [default: the step that it was saved for]",
)
@click.option("--json", "as_json", is_flag=True, help="All tensors, as JSON.")
@click.option(
    "--python",
    default=sys.executable,
    metavar="PROGRAM",
    help="A Python with torch, that reads checkpoints [default: the one that runs diagd].",
)
def compare_two(first: Path, second: Path, step: int | None, as_json: bool, python: str) -> int:
    """Say which tensors of two ledgers hold the same, bit for bit.

    A ledger is judged by the step that it was saved for, though it also holds what was sampled after others.

    \b
    Each of them is one of:
      a ledger that `diagd ledger save` wrote
      a checkpoint: a file of torch.save, a safetensors file, a folder of these (as of the Hugging Face hub),
        or a folder of torch.distributed.checkpoint

    Neither the number of ranks nor how tensors were split over them matters, and names need not agree in their prefixes
    or wrappers (module., model., _orig_mod.). diagd itself has no torch: a checkpoint is read by a process of its own
    with the Python that --python names, and nothing that a pickle asks for is run.

    \b
    Exit code: 0 all that can be compared is equal; 1 something differs (divergence.checkpoint) or is missing; 2 one
      cannot be read, nothing can be compared, the two seem to be of other moments of the training, or not all is held
      after the step that --step names.
    """
    from diagd.daemon.analyze.ledgers import compare
    from diagd.daemon.cli.ledger_files import locate, read
    from diagd.daemon.cli.ledger_lines import SHOWN, lines

    left = read(first, python)
    right = left if first == second else read(second, python)
    if step is not None and all(one.of_file for one in (*left, *right)):
        help = "leave --step out: a checkpoint holds one moment of the training"
        raise DiagdError(f"--step {step}: neither {first} nor {second} is a ledger", help=help, exit_code=2)
    found = compare(left, right, step)
    locate(found, first, second, python, None if as_json else SHOWN)
    if as_json:
        click.echo(json.dumps(_as_json(found), indent=2))
    else:
        for line in lines(found):
            click.echo(line)
    if not found.same:
        return 1
    return _UNREADABLE if found.other_moments or found.unheld or not found.equal else 0


def _as_json(found: "Comparison") -> dict[str, Any]:
    lists = {
        "equal": found.equal,
        "different": found.different,
        "missing": found.missing,
        "not_compared": found.unknown,
    }
    told = {name: [{"name": tensor, "why": why} for tensor, why in listed] for name, listed in lists.items()}
    return {"kind": found.kind, **told}
