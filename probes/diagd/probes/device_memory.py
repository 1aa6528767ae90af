"""What torch's caching allocator holds on this rank's device, by its own counters: nothing waits for the device."""

import sys
from typing import Any

from diagd.probes import device_snapshot
from diagd.probes.signals import SIGNALS

EVERY_NS = 500_000_000  # reading them takes some 50 µs, and the step path pays it
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
    allocated = stats.get("allocated_bytes", {}).get("all", {}).get("current", 0)
    _Device.watch.note(step, float(allocated), float(_Device.total))
