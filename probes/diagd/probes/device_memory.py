"""What torch's caching allocator holds on this rank's device, by its own counters: nothing waits for the device."""

import sys
import time
from typing import Any

from diagd.probes import device_snapshot
from diagd.probes.budget import BUDGET
from diagd.probes.signals import SIGNALS

EVERY_NS = 500_000_000  # reading them takes some 50 µs, and the step path pays it
FULL = 0.9  # of the device is reserved: from there on it matters in how large pieces the rest is
PIECES_EVERY_NS = 30_000_000_000  # that takes a walk over all blocks
# Signal -> the allocator's counter, as torch.cuda.memory_stats names it.
COUNTERS = {
    "memory/device_allocated": ("allocated_bytes", "current"),
    "memory/device_reserved": ("reserved_bytes", "current"),
    "memory/device_active": ("active_bytes", "current"),
    "memory/device_inactive_split": ("inactive_split_bytes", "current"),
    "memory/device_peak": ("allocated_bytes", "peak"),
}
COUNTS = {"memory/device_retries": "num_alloc_retries", "memory/device_ooms": "num_ooms"}


class _Device:
    """When it was last read, and how large it is."""

    read_ns = 0
    total = 0
    pieces_ns = 0  # when they were last looked at
    walk_ns = 0  # what that took
    watch = device_snapshot.Watch()


def sample(step: int, now_ns: int) -> None:
    """Record the allocator's counters, where torch uses a device and they were not read just now."""
    if now_ns - _Device.read_ns < EVERY_NS:
        return
    torch = sys.modules.get("torch")
    cuda: Any = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    _Device.read_ns = now_ns
    stats = cuda.memory_stats_as_nested_dict()
    for name, (counter, which) in COUNTERS.items():
        SIGNALS.record(name, float(stats.get(counter, {}).get("all", {}).get(which, 0)), step)
    for name, counter in COUNTS.items():
        SIGNALS.record(name, float(stats.get(counter, 0)), step)
    if not _Device.total:
        _Device.total = int(cuda.get_device_properties(cuda.current_device()).total_memory)
        SIGNALS.record("memory/device_total", float(_Device.total), step)
    _host(cuda, step)
    reserved = stats.get("reserved_bytes", {}).get("all", {}).get("current", 0)
    if reserved >= FULL * _Device.total and now_ns - _Device.pieces_ns >= PIECES_EVERY_NS:
        _pieces(cuda, step, now_ns)
    allocated = stats.get("allocated_bytes", {}).get("all", {}).get("current", 0)
    _Device.watch.note(step, float(allocated), float(_Device.total))


def _host(cuda: Any, step: int) -> None:
    """Pinned memory, which torch keeps in a cache of its own and which is no part of what the process may swap."""
    ask = getattr(getattr(cuda, "memory", None), "host_memory_stats_as_nested_dict", None)
    if ask is not None and (held := ask().get("allocated_bytes")):
        SIGNALS.record("memory/pinned", float(held.get("current", 0)), step)


def _pieces(cuda: Any, step: int, now_ns: int) -> None:
    """The largest block that is reserved and free, where there is room in the budget to look for it."""
    ask = getattr(getattr(cuda, "memory", None), "memory_snapshot", None)
    if ask is None or not BUDGET.affords(_Device.walk_ns):
        return
    _Device.pieces_ns, began = now_ns, time.thread_time_ns()
    SIGNALS.record("memory/device_largest_free", float(largest_free(ask())), step)
    _Device.walk_ns = time.thread_time_ns() - began
    BUDGET.spent(_Device.walk_ns)


def largest_free(segments: list[dict[str, Any]]) -> int:
    """Bytes of the largest block that is not in use, in segments as torch.cuda.memory_snapshot lists them."""
    blocks = (block for segment in segments for block in segment.get("blocks", ()))
    return max((int(block.get("size", 0)) for block in blocks if block.get("state") == "inactive"), default=0)
