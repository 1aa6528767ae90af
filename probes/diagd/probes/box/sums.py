"""What a rank tells of one step's tensors, on request: JSON in a file beside its box, `PID-START.sums`.

Unlike the ledger it is of no fixed size: it is written whole under another name and then given its own, so a reader
finds all of it or the one before. It is there by the time the rank's ledger says that the request was answered.

    {"serial": of the request, "step": …, "error": "" or why there is nothing,
     "tensors": [[kind, name, dtype, bytes of an element, shape of the whole, region, elements here, total, trained]],
     "unknown": [[kind, name, why]]}

`region` is what of the whole lies here: "" all of it, "0:4,8:16" a box (dimension by dimension, "0:2+4:6" several
runs of one), "@120:340" elements in row-major order. `total` is that of diagd/cuda_ext/additive.py, in 16 hexadecimal
digits.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SUFFIX = ".sums"
KINDS = ("parameter", "buffer", "state")  # by ledger.Kind


def write(
    path: Path, serial: int, step: int, tensors: Sequence[Sequence[Any]] = (), unknown: Sequence[Sequence[str]] = (),
    error: str = "",
) -> None:  # fmt: skip
    """Put it there, in the place of an earlier one.

    Raises:
        OSError: It cannot be written; then there is none.
    """
    told = {"serial": serial, "step": step, "error": error, "tensors": tensors, "unknown": unknown}
    part = path.with_suffix(f"{SUFFIX}-part")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(told, file)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise
