"""A few values of each of many tensors, by which they are known again: from the CPU at once; from a device in one copy
for all of them, which arrives some steps later and holds what they were when it was asked for.
"""

import sys
from collections.abc import Callable
from typing import Any

from diagd.probes import later

VALUES = 4  # at each end

Mark = tuple[float, ...]
Marks = dict[str, Mark]


def take(named: list[tuple[str, Any]], came: Callable[[Marks], None]) -> int:
    """Hand the marks of these tensors to `came`, those on each device together.

    Args:
        named: Tensors by name; one that cannot be read is left out.

    Returns:
        How often `came` is to be called, unless a device is far behind; it is called at once for what is on the CPU.
    """
    torch = sys.modules.get("torch")
    if (
        not named or torch is None or not later.possible(torch)
    ):  # a graph is captured, or a mode of the script's sees it
        came({})
        return 1
    by_device: dict[Any, list[tuple[str, Any]]] = {}
    with later.unseen(torch):
        for name, tensor in named:
            held = later.plain(tensor)  # not one whose memory a wrapper has taken away
            if held is not None and held.is_contiguous():
                by_device.setdefault(held.device, []).append((name, held.detach().view(-1)))
        for device, flat in by_device.items():
            _read(torch, device, flat, came)
    if not by_device:
        came({})
    return max(len(by_device), 1)


def _read(torch: Any, device: Any, flat: list[tuple[str, Any]], came: Callable[[Marks], None]) -> None:
    if _is_at_hand(device):
        came({name: _mark(one, [*one[:VALUES].tolist(), *one[-VALUES:].tolist()]) for name, one in flat})
        return
    ends = [end for _, one in flat for end in (one[:VALUES], one[-VALUES:])]
    values = torch.cat([end.to(torch.float64) for end in ends])
    later.read(values, lambda numbers: came(_parted(flat, numbers)))


def _is_at_hand(device: Any) -> bool:
    return bool(device.type == "cpu")


def _parted(flat: list[tuple[str, Any]], numbers: list[float]) -> Marks:
    found: Marks = {}
    begin = 0
    for name, one in flat:
        end = begin + 2 * min(one.numel(), VALUES)
        found[name] = _mark(one, numbers[begin:end])
        begin = end
    return found


def _mark(flat: Any, values: list[float]) -> Mark:
    return (float(flat.numel()), *values)
