"""`diagd scan` of a large log, as a training prints it, and of as much JSON, a line a step."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.offline import watched
from tests.live.job import DIAGD

CHUNK = 4096  # lines
SPIKE = 0.6  # of the way: so that there is something to find


def measure(megabytes: int) -> dict[str, Any]:
    """One after the other; each is read from the page cache, as it has just been written."""
    found: dict[str, Any] = {"megabytes": megabytes}
    for name, line in (("log", _log), ("jsonl", _json)):
        with tempfile.TemporaryDirectory(prefix="diagd-bench-") as folder:
            path = Path(folder) / f"train.{name}"
            lines = _write(path, line, megabytes)
            result = watched([DIAGD, "scan", str(path)])
        found[name] = {**result, "lines": lines, "right": "training.loss_spike" in result.pop("said")}
    return found


def _write(path: Path, line: Any, megabytes: int) -> int:
    size = sum(len(line(10**6, _loss(step, 100, random.Random(step)), 1.01234567)) for step in range(100)) // 100
    count = megabytes * 1_000_000 // size
    rng = random.Random(5)
    with path.open("w", encoding="utf-8") as file:
        for chunk in _chunks(count):
            file.write("".join(line(step, _loss(step, count, rng), 1 + 0.1 * rng.gauss(0, 1)) for step in chunk))
    return count


def _chunks(count: int) -> Iterator[range]:
    return (range(at, min(at + CHUNK, count)) for at in range(0, count, CHUNK))


def _loss(step: int, count: int, rng: random.Random) -> float:
    spike = 40 if 0 <= step - int(SPIKE * count) < 8 else 1
    return spike * (0.4 + 3.0 / (1 + 40 * step / count)) * (1 + 0.03 * rng.gauss(0, 1))


def _log(step: int, loss: float, norm: float) -> str:
    return (
        f"[2026-03-01 12:{step // 60 % 60:02d}:{step % 60:02d},123][INFO] trainer.py:88 - step {step} | loss {loss:.4f}"
        f" | grad_norm {norm:.3f} | lr 3.0e-4 | tokens/s {12000 + 40 * norm:.1f}\n"
    )


def _json(step: int, loss: float, norm: float) -> str:
    return f'{{"step": {step}, "loss": {loss}, "grad_norm": {norm}, "lr": 0.0003, "epoch": {step / 1e5}}}\n'


def shown(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table."""
    rows = []
    for name in ("log", "jsonl"):
        one = result[name]
        verdict = "finds the spike" if one["right"] else "does not find the spike"
        figure = f"{one['took_s']:.0f} s ({one['cpu_s']:.0f} s of CPU), {one['peak_mib']:.0f} MiB, {verdict}"
        what = f"`diagd scan`, {result['megabytes']} MB of {name}, {one['lines'] / 1e6:.1f} million lines"
        rows.append([what, figure, "1 GB < 60 s; time from start to exit, highest PSS of all its processes"])
    return rows
