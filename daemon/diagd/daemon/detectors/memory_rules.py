"""All that is said of memory: what leaks, on the host and on the device, and otherwise whether it will run out."""

from collections.abc import Iterator

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.memory_ahead import states_ahead
from diagd.daemon.detectors.memory_children import children
from diagd.daemon.detectors.memory_device import device_findings
from diagd.daemon.detectors.memory_fds import descriptors
from diagd.daemon.detectors.memory_host import growing, host_leaks
from diagd.daemon.detectors.memory_oom import host_oom
from diagd.daemon.detectors.memory_pinned import pinned
from diagd.daemon.detectors.memory_shm import shm
from diagd.daemon.detectors.scene import Scene


def memory(scene: Scene) -> Iterator[Finding]:
    """Leaks first: the forecast of an established one is a part of it, and stands alone only where there is none."""
    state = scene.state
    if state.ended_s is not None or state.from_dumps:
        return
    grows = growing(state)
    leaks = list(host_leaks(state, grows))
    yield from leaks
    yield from children(state)
    established = {rank for leak in leaks if leak.severity != Severity.INFO for rank in leak.ranks}
    yield from host_oom(state, grows, established)
    shared = list(shm(state))
    yield from shared
    yield from descriptors(state, {rank for one in shared for rank in one.ranks})
    yield from device_findings(state)
    yield from pinned(state)
    yield from states_ahead(state)
