"""One drill while it runs: a `diagd run` in a folder of its own."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from diagd.daemon.selftest.drills import HANG_AFTER_S, Drill
from diagd.daemon.selftest.judge import Judgement, judge
from diagd.daemon.selftest.processes import MARK, kill_marked
from diagd.daemon.selftest.trainer import Trainer
from diagd.daemon.supervisor import find_place

LIMIT_S = 60.0  # a drill takes about ten
ENDING_S = 10.0
_TAIL_LINES = 8
_JOB = Path(__file__).with_name("job.py")
_INJECTED = "diagd: injected "
# What the caller's own job may have set: it would make this one another.
_NOT_OURS = ("DIAGD_", "SLURM_", "TORCHELASTIC_", "PET_", "MASTER_", "RANK", "WORLD_SIZE", "ROLE_NAME",
             *(f"{of}_{what}" for of in ("LOCAL", "GROUP", "ROLE") for what in ("RANK", "WORLD_SIZE")))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """How a drill went.

    Attributes:
        verdict_s: From the fault to the verdict; None where there was no fault, or no verdict.
        seconds: The whole drill.
        tail: The end of what the job and diagd printed.
    """

    drill: Drill
    right: bool
    said: str
    verdict_s: float | None
    seconds: float
    tail: tuple[str, ...] = ()


class Running:
    """A drill that was started; `close` ends it and removes all that it left."""

    def __init__(self, drill: Drill, trainer: Trainer, parent: Path) -> None:
        self.drill = drill
        self._mark = secrets.token_hex(8)
        self._job_id = f"selftest-{drill.name}-{self._mark[:4]}"
        self._folder = parent / drill.name
        self._folder.mkdir()
        self._output = self._folder / "output"
        shutil.copy(_JOB, self._folder / "train.py")  # where it is a user's script, not a part of diagd
        self._fault_s: float | None = None
        self._started_s = time.monotonic()
        self._environ = _environment(self._folder, self._mark)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command(trainer), cwd=self._folder, env=self._environ, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def look(self) -> Result | None:
        """How it went, once that is known."""
        exit_code = self._process.poll()
        now_s = time.monotonic()
        if self._fault_s is None and _INJECTED in self._printed():
            self._fault_s = now_s
        found = judge(self.drill, self._report(), exit_code)
        if found is None and now_s - self._started_s > LIMIT_S:
            found = Judgement(False, f"nothing of it within {LIMIT_S:.0f} s")
        return self._result(found, now_s) if found is not None else None

    def close(self) -> None:
        """End the job and its `diagd run`, which then removes its run directory."""
        deadline = time.monotonic() + ENDING_S
        while self._process.poll() is None and time.monotonic() < deadline:
            kill_marked(self._mark, job_only=True)
            self._process.send_signal(signal.SIGTERM)  # the first ends the job, another one the wait for last words
            time.sleep(0.1)
        while kill_marked(self._mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        place, _ = find_place(self._job_id, self._environ)  # which removes what a `diagd run` that was killed has left
        if place is not None:
            place.remove()

    def _command(self, trainer: Trainer) -> list[str]:
        spec = find_spec("diagd_command")
        assert spec is not None  # noqa: S101 - it lies beside this package
        assert spec.origin is not None  # noqa: S101
        options = ["--report", "report", "--job-id", self._job_id, "--on-hang", "abort"]  # ends though nobody be there
        return [sys.executable, "-P", spec.origin, *by_hand(self.drill, trainer, options, "train.py")]

    def _printed(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def _report(self) -> dict[str, Any] | None:
        try:
            report = json.loads((self._folder / "report" / "report.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return report if isinstance(report, dict) else None

    def _result(self, found: Judgement, now_s: float) -> Result:
        took_s = now_s - self._fault_s if self._fault_s is not None and found.right else None
        tail = () if found.right else tuple(self._printed().splitlines()[-_TAIL_LINES:])
        return Result(self.drill, found.right, found.said, took_s, now_s - self._started_s, tail)


def by_hand(drill: Drill, trainer: Trainer, options: Sequence[str] = (), script: str = str(_JOB)) -> list[str]:
    """The words behind `diagd` that run a drill's job."""
    fault = ["--inject", drill.fault] if drill.fault else []
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(drill.ranks)]
    job = [trainer.path, *(launcher if drill.torchrun else []), script, str(drill.ranks), str(drill.steps)]
    return ["run", "--hang-after", f"{HANG_AFTER_S:g}", *options, *fault, "--", *job]


def _environment(folder: Path, mark: str) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
    kept.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's name may not resolve
    return {
        **kept,
        MARK: mark,
        "XDG_STATE_HOME": str(folder / "state"),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONUNBUFFERED": "1",
    }
