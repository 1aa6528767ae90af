"""Devices by a stand-in for NVML with its calls; a machine without one."""

from types import SimpleNamespace

from tests.agent.builders import until

from diagd.daemon.agent.devices import Devices, read

GIB = 1024.0**3


def nvml(**changes: object) -> SimpleNamespace:
    """One card of 80 GiB with two processes."""
    processes = [SimpleNamespace(pid=7, usedGpuMemory=20 * GIB), SimpleNamespace(pid=8, usedGpuMemory=10 * GIB)]
    calls = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda number: number,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=80 * GIB, used=31 * GIB),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: processes,
    }
    return SimpleNamespace(**{**calls, **changes})


def fails() -> None:
    raise RuntimeError("Driver Not Loaded")


def test_others_on_the_card_are_told_with_what_the_driver_takes_itself() -> None:
    found = read(nvml())
    assert found[7] == {
        "memory/device_used": 20 * GIB, "memory/device_others": 11 * GIB, "memory/device_size": 80 * GIB,
    }  # fmt: skip


def test_a_driver_that_does_not_tell_who_holds_what_is_no_error() -> None:
    hidden = [SimpleNamespace(pid=7, usedGpuMemory=None)]
    found = read(nvml(nvmlDeviceGetComputeRunningProcesses=lambda handle: hidden))
    assert found[7]["memory/device_used"] == 0.0


def test_it_is_read_in_a_thread_of_its_own() -> None:
    devices = Devices(nvml())
    until(lambda: devices.of(7))
    assert devices.of(9) == {}
    devices.close()


def test_a_machine_without_a_device_is_healthy_and_says_why_nothing_is_read() -> None:
    devices = Devices(nvml(nvmlInit=fails))
    until(lambda: devices.of(7) == {} and devices.note)
    assert devices.note == "no NVML: Driver Not Loaded"
