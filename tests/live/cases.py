"""The planted faults: what each job is, and which answers about it are right."""

import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FAULTS = HERE / "faults.toml"
JOBS = HERE / "jobs"
FAMILIES = ("hang", "exit")
DEFAULT_LIMIT_S = 90.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One job with a planted fault, or a healthy one (no kinds). Of several right answers the best comes first."""

    name: str
    script: Path
    nproc: int
    launcher: str = "torchrun"
    args: tuple[str, ...] = ()
    title: str = ""
    fault_marker: str = ""  # part of a line that the job prints just before the fault
    run_limit_s: float = DEFAULT_LIMIT_S
    kinds: tuple[str, ...] = ()
    ranks: tuple[tuple[int, ...], ...] = ()  # culprits; none: anything goes
    where: tuple[str, ...] = ()  # functions, or file:line; none: anything goes
    says: tuple[str, ...] = ()  # words that the incident's summary or its first cause must hold
    quiet: bool = False  # a control that gives no reason for a warning either, be it one that resolves
    smoke: bool = False
    needs: tuple[str, ...] = ()  # modules beyond what development installs
    handed: bool = False  # judged by hang and exit alone, as it may also show faults of other families

    @property
    def control(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.kinds

    @property
    def lacks(self) -> tuple[str, ...]:
        """What it needs and is not installed: it cannot be run here."""
        return tuple(name for name in self.needs if find_spec(name) is None)

    def command(self) -> list[str]:
        """What a person would type to start it, in the folder that holds the script."""
        return [*_launch(self.launcher, self.nproc), self.script.name, *self.args]


def load_faults(path: Path = FAULTS, jobs: Path = JOBS) -> list[Case]:
    """The cases of a faults.toml, in its order."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("case", [])
    return [_case(entry, jobs / entry["script"]) for entry in entries]


def load_handed(root: Path) -> list[Case]:
    """Cases of a folder each, with train.py and case.toml: those about hangs and deaths, and healthy ones."""
    found = []
    for path in sorted(root.glob("**/case.toml")):
        spec = tomllib.loads(path.read_text(encoding="utf-8"))
        entry = {**spec["case"], **spec.get("expect", {}), "name": path.parent.name}
        case = _case(entry, path.parent / "train.py", handed=True)
        if case.control or any(kind.startswith(FAMILIES) for kind in case.kinds):
            found.append(case)
    return found


def _case(entry: Mapping[str, Any], script: Path, *, handed: bool = False) -> Case:
    return Case(
        name=entry["name"],
        script=script,
        nproc=int(entry["nproc"]),
        launcher=entry.get("launcher", "torchrun"),
        args=tuple(map(str, entry.get("args", ()))),
        title=entry.get("title", ""),
        fault_marker=entry.get("fault_marker", ""),
        run_limit_s=float(entry.get("run_limit_s", DEFAULT_LIMIT_S)),
        kinds=tuple(entry.get("kinds", ())),
        ranks=tuple(tuple(sorted(ranks)) for ranks in entry.get("ranks", ())),
        where=tuple(entry.get("where", ())),
        says=tuple(entry.get("says", ())),
        quiet=bool(entry.get("quiet", False)),
        needs=tuple(entry.get("needs", ())),
        smoke=bool(entry.get("smoke", False)),
        handed=handed,
    )


def _launch(launcher: str, nproc: int) -> Sequence[str]:
    """The words before the script. Programs are those beside this Python, whatever PATH says."""
    beside = Path(sys.executable).parent
    match launcher:
        case "torchrun":
            return [str(beside / "torchrun"), "--standalone", "--nproc-per-node", str(nproc)]
        case "accelerate":
            # On CPUs it starts several processes only by this way; the script itself says Accelerator(cpu=True).
            how = {"--num_processes": nproc, "--num_machines": 1, "--main_process_port": 0}
            plain = ["--mixed_precision", "no", "--dynamo_backend", "no"]
            return [
                str(beside / "accelerate"),
                "launch",
                "--multi_gpu",
                *plain,
                *(str(w) for p in how.items() for w in p),
            ]
        case "deepspeed":
            return [str(beside / "deepspeed"), "--num_accelerators", str(nproc)]
        case "python":
            return [sys.executable]
        case _:
            raise ValueError(f"launcher {launcher!r} is none of torchrun, accelerate, deepspeed, python")
