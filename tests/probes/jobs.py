"""Real scripts under the probes, and what their boxes hold afterwards."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagd.probes.box import layout
from diagd.probes.box.layout import Live, Op, Record
from diagd.probes.box.reader import BoxReader

ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = ROOT / "probes/diagd/probes/bootstrap"
SCRIPTS = Path(__file__).with_name("scripts")
_FOREIGN = ("DIAGD_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "PYTHONPATH")


def environment(folder: Path | None, **extra: str) -> dict[str, str]:
    """This process's environment, with the probes' where a run directory is given."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
    env["OMP_NUM_THREADS"] = "1"
    if folder is not None:
        env |= {"DIAGD_DIR": str(folder), "DIAGD_JOB_ID": "job", "PYTHONPATH": str(BOOTSTRAP)}
    return env | extra


def run(
    script: str | Path, *args: str, folder: Path | None, ranks: int = 0, flags: tuple[str, ...] = (),
    cwd: Path | None = None, python: str = sys.executable,
    variables: dict[str, str] | None = None, **extra: str,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run a script, or some code, under torchrun where it has ranks."""
    launcher = [] if not ranks else ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    what = [str(script)] if isinstance(script, Path) else ["-c", script]
    command = [python, *flags, *launcher, *what, *args]
    return subprocess.run(
        command,
        env=environment(folder, **extra, **(variables or {})),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
    )


@dataclass
class Seen:
    """What one box tells."""

    identity: dict[str, Any]
    groups: list[dict[str, Any]]
    ending: dict[str, Any]
    live: dict[str, int]
    records: list[Record]
    reader: BoxReader = field(repr=False)

    def named(self, op: Op) -> list[Record]:
        """Its records of that operation."""
        return [record for record in self.records if record.op == op]

    def site(self, record: Record) -> tuple[str, int, str]:
        """File name, line and function that a record comes from."""
        file, line, function = self.reader.string(record.site).split("\t")
        return Path(file).name, int(line), function

    def detail(self, record: Record) -> str:
        """The record's detail."""
        return self.reader.string(record.detail)


def boxes(folder: Path) -> list[Seen]:
    """All boxes of a run directory, by rank."""
    return sorted((_seen(path) for path in folder.glob("*.box")), key=lambda seen: int(seen.identity["rank"]))


def _seen(path: Path) -> Seen:
    reader = BoxReader(path)
    return Seen(
        identity=reader.text(layout.IDENTITY),
        groups=(reader.text(layout.GROUPS) or {"groups": []})["groups"],
        ending=reader.text(layout.ENDING) or {},
        live={slot.name: reader.live(slot) for slot in Live},
        records=reader.history(),
        reader=reader,
    )


def line_of(script: Path, mark: str) -> int:
    """The line that ends in the comment `# mark`."""
    lines = script.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def exits(folder: Path) -> dict[int, int]:
    """Wait status of each process that some launcher saw end."""
    found: dict[int, int] = {}
    for path in folder.glob("*.exits"):
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            found[entry["pid"]] = entry["status"]
    return found
