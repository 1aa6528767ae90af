"""How the kernel is loaded and launched through the driver, on a stand-in for it that has the same signatures."""

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from tests.cuda_ext.conftest import HostKernel, by_device

from diagd.cuda_ext import driver
from diagd.cuda_ext.digest import digest_many

DEVICE = 3  # the only one that the stand-in knows
STREAM = 0x1122334411223344


@pytest.fixture
def _driver(kernel: HostKernel, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    load = ctypes.CDLL
    monkeypatch.setattr("ctypes.CDLL", lambda name: load(str(kernel.path) if name == "libcuda.so.1" else name))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=STREAM))
    driver.kernel.cache_clear()
    yield
    driver.kernel.cache_clear()


@pytest.mark.usefixtures("_driver")
def test_the_kernel_is_launched_with_what_it_expects() -> None:
    loaded = driver.kernel(DEVICE)
    assert isinstance(loaded, driver.Kernel)
    tensors = [torch.randn(size) for size in (1, 1000, 0, 70_000)] + [torch.randn(30, 50).t()]
    assert [one.bits for one in by_device(tensors, loaded)] == [one.bits for one in digest_many(tensors)]


@pytest.mark.usefixtures("_driver")
def test_what_the_driver_refuses_is_said_in_its_words() -> None:
    assert driver.kernel(DEVICE + 1) == "cuDeviceGet: invalid (1)"


@pytest.mark.usefixtures("_driver")
def test_the_context_is_left_as_it_was_found_when_loading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(driver.Kernel, "_function", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            driver.Kernel(DEVICE)
    assert isinstance(driver.kernel(DEVICE), driver.Kernel)  # the stand-in refuses a second context on top


def test_a_torch_without_cuda_is_said() -> None:
    driver.kernel.cache_clear()
    assert driver.kernel(0) == "this torch is not built for CUDA"
