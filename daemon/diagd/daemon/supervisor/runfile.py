"""run.json in the run directory: what another diagd on this machine needs to find a running job."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME = "run.json"


def write_run_file(run_dir: Path, facts: Mapping[str, Any]) -> None:
    """Write it whole, so that a reader never sees half of it; a full disk is no reason to disturb the job."""
    with suppress(OSError):
        fresh = run_dir / f".{NAME}.{os.getpid()}"
        fresh.write_text(json.dumps(facts), encoding="utf-8")
        fresh.replace(run_dir / NAME)


def read_run_file(run_dir: Path) -> dict[str, Any]:
    """What it says; empty where there is none."""
    try:
        facts = json.loads((run_dir / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
