"""What the node's GPUs hold, by process, from NVML: only so other processes on a rank's card are seen.

Read in a thread of its own, as a driver that hangs must not hang the agent. Not run on a GPU so far.
"""

import logging
import threading
from typing import Any

log = logging.getLogger(__name__)

EVERY_S = 5.0
PREFIX = "memory/"


class Devices:
    """The node's devices as of the last reading; empty where there is no NVML or no device, which is no fault.

    Args:
        nvml: The module pynvml, or one that looks like it; None: import it.
    """

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = nvml
        self._held: dict[int, dict[str, float]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.note = ""  # why nothing is read, where that is so

    def of(self, pid: int) -> dict[str, float]:
        """`memory/device_used` by it, `memory/device_others` by others on its card, `memory/device_size`; bytes.

        A container that hides its process numbers from the driver shows nothing here.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._read_on, name="diagd-nvml", daemon=True)
            self._thread.start()
        return dict(self._held.get(pid, {}))

    def close(self) -> None:
        """Read no more; a reading that hangs is left to the end of the process."""
        self._stop.set()

    def _read_on(self) -> None:
        nvml = self._nvml or _imported()
        try:
            if nvml is None:
                self.note = "no NVML: pynvml is not installed"
                return
            nvml.nvmlInit()
            while not self._stop.is_set():
                self._held = read(nvml)
                if self._stop.wait(EVERY_S):
                    nvml.nvmlShutdown()
        except Exception as exc:  # noqa: BLE001 - NVML's errors are made at run time, and none may end the agent
            self.note = f"no NVML: {exc}"  # a machine without a GPU says so here
            log.debug("devices are not read: %s", exc)


def read(nvml: Any) -> dict[int, dict[str, float]]:
    """What each process holds of its device, and others beside it."""
    found: dict[int, dict[str, float]] = {}
    for number in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        size = nvml.nvmlDeviceGetMemoryInfo(handle)
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            used = float(process.usedGpuMemory or 0)  # None where the driver does not tell
            if used >= found.get(process.pid, {}).get(f"{PREFIX}device_used", 0.0):
                found[process.pid] = {
                    f"{PREFIX}device_used": used,
                    f"{PREFIX}device_others": max(float(size.used) - used, 0.0),
                    f"{PREFIX}device_size": float(size.total),
                }
    return found


def _imported() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
