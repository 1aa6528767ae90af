"""Reads ledgers and checkpoints for `diagd ledger compare`; a checkpoint in a process that has torch."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diagd.daemon.analyze.ledger_tensors import Tensor, of_file, tensors_of
from diagd.daemon.analyze.ledgers import Comparison
from diagd.daemon.analyze.located import in_which_part, wanted
from diagd.daemon.errors import DiagdError

Parts = dict[str, dict[str, dict[str, str]]]  # name -> region -> its part of the sum -> ranks, none of a file


def read(path: Path, python: str) -> list[Tensor]:
    """The tensors there.

    Raises:
        DiagdError: It is missing, damaged, or of no known form.
    """
    if not path.exists():
        raise DiagdError(f"{path}: is not there", help="name a ledger or a checkpoint", exit_code=2)
    if path.suffix == ".json" or (path.is_file() and _begins_as_json(path)):
        try:
            return tensors_of(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, AttributeError) as exc:
            raise DiagdError(
                f"{path}: is no ledger ({exc})", help="write one with `diagd ledger save`", exit_code=2
            ) from exc
    return [of_file(one["name"], one["dtype"], one["shape"], one["digest"], one["sum"]) for one in _run(path, python)]


def locate(found: Comparison, first: Path, second: Path, python: str, most: int | None) -> None:
    """Say of the first so many that differ in which part they do, where that can be told."""
    pairs = found.apart[:most]
    sides = [
        {file.name: wanted(one, other) for one, other in pairs for file in [(one, other)[side]] if file.of_file}
        for side in (0, 1)
    ]
    parts = [_parts(path, python, regions) for path, regions in zip((first, second), sides, strict=True)]
    for number, (one, other) in enumerate(pairs):
        if one.shape == other.shape:
            mine, theirs = (part.get(t.name, t.parts) for t, part in zip((one, other), parts, strict=True))
            where = in_which_part(one.shape, mine, theirs)
            name, why = found.different[number]
            found.different[number] = name, f"{why}, {where}" if where else why


def _parts(path: Path, python: str, regions: dict[str, list[str]]) -> Parts:
    """Of a checkpoint, as far as they are wanted."""
    asked = {name: told for name, told in regions.items() if told}
    found: Parts = {}
    for one in _run(path, python, asked) if asked else ():
        found.setdefault(one["name"], {})[one["region"]] = {one["total"]: ""}
    return found


def _begins_as_json(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16).lstrip().startswith(b"{")


def _run(path: Path, python: str, regions: dict[str, list[str]] | None = None) -> Iterator[dict[str, Any]]:
    """What the program that reads checkpoints tells of this one."""
    import diagd.probes

    reader = Path(diagd.probes.__file__).with_name("checkpoint_digests.py")
    command = [python, "-P", str(reader), str(path.resolve()), *(["--parts"] if regions is not None else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, input=json.dumps(regions))
    except OSError as exc:
        raise DiagdError(
            f"{python}: cannot be started ({exc.strerror})", help="name a Python with torch", exit_code=2
        ) from exc
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        lacks = "has no torch" in said[-1]
        help = "--python PROGRAM names the Python that reads it; it must have torch" if lacks else ""
        raise DiagdError(said[-1], help=help, exit_code=2)
    return map(json.loads, done.stdout.splitlines())
