"""How long a person waits for `diagd --help`."""

import statistics
import subprocess
import time
from typing import Any

from tests.live.job import DIAGD


def measure(runs: int) -> dict[str, Any]:
    """From start to exit, once without counting it."""
    taken = []
    for _ in range(runs + 1):
        began = time.monotonic()
        subprocess.run([DIAGD, "--help"], capture_output=True, check=True)
        taken.append(time.monotonic() - began)
    return {"median_s": statistics.median(taken[1:]), "worst_s": max(taken[1:]), "runs": runs}


def shown(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table."""
    figure = f"{1000 * result['median_s']:.0f} ms"
    return [
        ["`diagd --help`", figure, f"< 150 ms; median of {result['runs']}, worst {1000 * result['worst_s']:.0f} ms"]
    ]
