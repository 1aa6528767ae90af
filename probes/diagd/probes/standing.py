"""Statistics in half precision that are written at each step and stay: what a step adds is less than half of what two
numbers of their dtype lie apart, as where a model's buffers are cast with it, or by FSDP's `buffer_dtype`.

Known by their names (a mean, a variance, a running or moving average): other buffers may be written anew with the same.
The fact `buffers/standing` holds a line for each: its name, its dtype and how often it was written, with tabs between.
"""

import re
import sys
from typing import Any, NamedTuple

from diagd.probes import later
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS

LOOKS, STEPS = 3, 48  # in a row at which it is the same, and steps that they span
MOST, LARGEST = 32, 65_536  # buffers, elements of one
_HALF = ("torch.bfloat16", "torch.float16")
_STATISTIC = re.compile(r"(?:^|_)(?:running|moving|means?|vars?|variance|std|avg|average|ema|stats?)(?:$|_)")


class _Seen(NamedTuple):
    value: tuple[float, float]
    version: int
    step: int
    since: int  # the first of the looks at which it was the same
    looks: int
    first_version: int  # at that look


class _Standing:
    """This process's."""

    def __init__(self) -> None:
        self.seen: dict[str, _Seen] = {}
        self.lines: dict[str, str] = {}


STANDING = _Standing()


def look(step: int) -> None:
    """Beside the counts of parameters."""
    torch = sys.modules["torch"]
    held = [(one.name, t) for one in NAMED.buffers if _is_wanted(one.name, t := one.tensor())][:MOST]
    for device in {tensor.device for _, tensor in held}:
        here = [(name, tensor) for name, tensor in held if tensor.device == device]
        about = [(name, str(tensor.dtype).removeprefix("torch."), int(tensor._version)) for name, tensor in here]
        with later.unseen(torch):
            values = torch.stack([part for _, tensor in here for part in _fingerprint(torch, tensor)])
            later.read(values, lambda numbers, about=about: _judge(about, numbers, step))  # type: ignore[misc]


def _is_wanted(name: str, tensor: Any) -> bool:
    if tensor is None or str(tensor.dtype) not in _HALF or not 0 < tensor.numel() <= LARGEST:
        return False
    return _STATISTIC.search(name.rpartition(".")[2].lower()) is not None


def _fingerprint(torch: Any, tensor: Any) -> tuple[Any, Any]:
    """Two numbers that are the same where all elements are: half precision adds up exactly in float64."""
    flat = tensor.detach().reshape(-1).double()
    return flat.sum(), torch.dot(flat, torch.arange(1, flat.numel() + 1, dtype=flat.dtype, device=flat.device))


def _judge(about: list[tuple[str, str, int]], numbers: list[float], step: int) -> None:
    told = len(STANDING.lines)
    for place, (name, dtype, version) in enumerate(about):
        value, known = (numbers[2 * place], numbers[2 * place + 1]), STANDING.seen.get(name)
        if known is None or known.value != value or version - known.version < step - known.step:
            STANDING.seen[name] = _Seen(value, version, step, step, 1, version)
            continue
        now = STANDING.seen[name] = known._replace(version=version, step=step, looks=known.looks + 1)
        if now.looks >= LOOKS and step - now.since >= STEPS:
            STANDING.lines.setdefault(name, f"{name}\t{dtype}\t{version - now.first_version}")
    if told < len(STANDING.lines):
        SIGNALS.fact("buffers/standing", "\n".join(STANDING.lines.values())[:900], step)
