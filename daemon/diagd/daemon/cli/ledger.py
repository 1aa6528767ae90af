"""`diagd ledger`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagd.daemon.errors import DiagdError

if TYPE_CHECKING:
    from diagd.daemon.analyze.ledgers import Comparison, Tensor

_SHOWN = 20  # of each kind
_UNREADABLE = 2


@click.group("ledger")
def command() -> None:
    """Save digests of what the tensors of a running job hold, and compare them with another job or a checkpoint."""


@command.command("save")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--job", metavar="NAME", help="Which job; needed only where several run here.")
def save(file: Path, job: str | None) -> None:
    """Write the ledger of a running job to FILE: each tensor's type, shape and placement, and digests by step.

    Digests are of the parameters, buffers and optimizer state that diagd compares between ranks: before the first
    step, after the next two, and then parameters and buffers once in 32 steps, frozen parameters and optimizer state
    once in 64. Parts of split tensors are described, and not digested.
    """
    from diagd.daemon.cli.jobs import fetch, find_job

    found = find_job(job)
    address = found.info.get("http")
    try:
        if not address:
            raise OSError("it has no aggregator on this machine")
        document = fetch(address, "/api/v1/ledger")
    except (OSError, ValueError) as exc:
        raise DiagdError(f"the job's aggregator does not answer: {exc}", help="try again", exit_code=4) from exc
    if not document.get("tensors"):
        raise DiagdError(
            "the job has no ledger (yet)",
            help="tensors are digested from the first step on, in jobs of two ranks and more",
            exit_code=3,
        )
    try:
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as exc:
        raise DiagdError(f"{file}: cannot be written ({exc.strerror})", help="name another file", exit_code=2) from exc
    click.echo(f"{len(document['tensors'])} tensors of job {document['job']} in {file}")


@command.command("compare")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="All tensors, as JSON.")
@click.option(
    "--python",
    default=sys.executable,
    metavar="PROGRAM",
    help="A Python with torch, that reads checkpoints [default: the one that runs diagd].",
)
def compare_two(first: Path, second: Path, as_json: bool, python: str) -> int:
    """Say which tensors of two ledgers hold the same, bit for bit.

    \b
    Each of them is one of:
      a ledger that `diagd ledger save` wrote
      a checkpoint: a file of torch.save, a safetensors file, a folder of these (as of the Hugging Face hub),
        or a folder of torch.distributed.checkpoint

    Names need not agree in their prefixes (module., model.). diagd itself has no torch: a checkpoint is read by a
    process of its own with the Python that --python names, and nothing that a pickle asks for is run. Parts of split
    tensors are compared with the same parts alone, never with the whole.

    \b
    Exit code: 0 all that can be compared is equal; 1 something differs or is missing; 2 one cannot be read, or
      nothing can be compared.
    """
    from diagd.daemon.analyze.ledgers import compare

    left = _read(first, python)
    found = compare(left, left if first == second else _read(second, python))
    if as_json:
        click.echo(json.dumps(_as_json(found), indent=2))
    else:
        for line in _lines(found):
            click.echo(line)
    if not (found.equal or found.different or found.missing):
        return _UNREADABLE
    return 0 if found.same else 1


def _read(path: Path, python: str) -> list["Tensor"]:
    from diagd.daemon.analyze.ledgers import tensors_of

    if not path.exists():
        raise DiagdError(f"{path}: is not there", help="name a ledger or a checkpoint", exit_code=2)
    if path.suffix == ".json" or (path.is_file() and _begins_as_json(path)):
        try:
            return tensors_of(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, AttributeError) as exc:
            raise DiagdError(
                f"{path}: is no ledger ({exc})", help="write one with `diagd ledger save`", exit_code=2
            ) from exc
    return _checkpoint(path, python)


def _begins_as_json(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16).lstrip().startswith(b"{")


def _checkpoint(path: Path, python: str) -> list["Tensor"]:
    import diagd.probes
    from diagd.daemon.analyze.ledgers import of_file

    reader = Path(diagd.probes.__file__).with_name("checkpoint_digests.py")
    try:
        done = subprocess.run(
            [python, "-P", str(reader), str(path.resolve())], capture_output=True, text=True, check=False
        )
    except OSError as exc:
        raise DiagdError(
            f"{python}: cannot be started ({exc.strerror})", help="name a Python with torch", exit_code=2
        ) from exc
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        lacks = "has no torch" in said[-1]
        help = "--python PROGRAM names the Python that reads it; it must have torch" if lacks else ""
        raise DiagdError(said[-1], help=help, exit_code=2)
    return [
        of_file(one["name"], one["dtype"], one["shape"], one["digest"])
        for one in map(json.loads, done.stdout.splitlines())
    ]


def _as_json(found: "Comparison") -> dict[str, list[dict[str, str]]]:
    lists = {
        "equal": found.equal,
        "different": found.different,
        "missing": found.missing,
        "not_compared": found.unknown,
    }
    return {name: [{"name": tensor, "why": why} for tensor, why in listed] for name, listed in lists.items()}


def _lines(found: "Comparison") -> list[str]:
    lines = []
    for title, listed in (("differ", found.different), ("missing", found.missing), ("not compared", found.unknown)):
        for name, why in listed[:_SHOWN]:
            lines.append(f"{title:12}  {name}: {why}")
        if len(listed) > _SHOWN:
            lines.append(f"{title:12}  and {len(listed) - _SHOWN} more (--json shows all)")
    whys = {why for _, why in found.equal if why}
    when = f" ({whys.pop()})" if len(whys) == 1 else ""
    equal = f"{len(found.equal)} tensor{'s' * (len(found.equal) != 1)} equal{when}"
    counts = f"{equal}, {len(found.different)} differ, {len(found.missing)} missing"
    return [*lines, f"{counts}, {len(found.unknown)} not compared"]
