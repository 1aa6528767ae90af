"""Starts `diagd run` as a real process, with a watch that the test commands."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DRIVER = """
import sys
import diagd.daemon.supervisor.watcher as watcher
watcher.MODULE = "fake_watch"
from diagd.daemon.cli import main
sys.exit(main(sys.argv[1:]))
"""
WAIT_S = 20.0


class Run:
    """One `diagd run` in a folder of its own."""

    def __init__(self, folder: Path, plan: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None):
        self.folder = folder
        self.log = folder / "watch.log"
        roots = [str(HERE), *(str(ROOT / room) for room in ("daemon", "probes", "proto", "cuda_ext"))]
        self.environ = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("DIAGD", "SLURM", "PYTHONPATH"))
            },
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "FAKE_WATCH": json.dumps({"log": str(self.log), **(plan or {})}),
            **(environ or {}),
        }
        self.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*roots, self.environ.get("PYTHONPATH", "")]))

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", DRIVER, "run", *words]

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        process: subprocess.Popen[str] = subprocess.Popen(
            self.command(*words), cwd=self.folder, env=self.environ, **pipes
        )
        return process

    def finish(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, **options)
        out, err = process.communicate(timeout=WAIT_S * 2)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def notes(self) -> list[dict[str, Any]]:
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def heard(self, key: str) -> list[Any]:
        return [note["heard"][key] for note in self.notes() if key in note.get("heard", {})]


def until(condition: Callable[[], Any], limit_s: float = WAIT_S) -> Any:
    """Wait for something that is true, and return it."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def python(code: str) -> Sequence[str]:
    return ("--", sys.executable, "-c", code)
