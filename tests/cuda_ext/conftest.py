"""The paths of the digest, each as one function from a tensor to its digest.

"kernel" is the GPU's code compiled for the CPU, and "device" the operations for a GPU without it, run on the CPU.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from diagd.cuda_ext import build, compiled, digest
from diagd.cuda_ext.device import Launches, Task, enqueue
from diagd.cuda_ext.digest import Digest, Pending
from diagd.cuda_ext.elements import KINDS

HERE = Path(__file__).resolve().parent
PATHS = ("torch", "device", "compiled", "kernel")  # the last two need a C and a C++ compiler


class HostKernel:
    """digest.cu, compiled for the CPU."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._launch = ctypes.CDLL(str(path)).launch
        self.launches = 0

    def launch(self, jobs: int, tiles: int, table: int, sums: int, results: int) -> None:
        self.launches += 1
        self._launch(*(ctypes.c_uint64(value) for value in (jobs, tiles, table, sums, results)))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> compiled.Library:
    """Of the source as it is now, not as it was at the last installation."""
    path = tmp_path_factory.mktemp("native") / "_digest.so"
    assert build.build(path) == ""
    return compiled.Library(path)


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> HostKernel:
    path = tmp_path_factory.mktemp("kernel") / "kernel.so"
    sources = ("-I", str(build.SOURCE.parent), str(HERE / "kernel_on_host.cpp"))
    flags = ("-std=c++17", "-O1", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC")
    subprocess.run([shutil.which("c++") or "g++", *flags, *sources, "-o", str(path)], check=True)
    return HostKernel(path)


def by_device(tensors: list[torch.Tensor], kernel: Launches | None) -> list[Digest]:
    kinds = [KINDS.get(tensor.dtype, 0) for tensor in tensors]
    pending = Pending(tensors, kinds)
    tasks = [Task(i, tensor, kind) for i, (tensor, kind) in enumerate(zip(tensors, kinds, strict=True))]
    pending.follow(*enqueue(tasks, kernel))
    return pending.result()


@pytest.fixture(params=PATHS)
def taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[torch.Tensor], Digest]:
    """digest() by one path."""
    if request.param in ("device", "kernel"):
        launches = request.getfixturevalue("kernel") if request.param == "kernel" else None
        return lambda tensor: by_device([tensor], launches)[0]
    use = "left out by a test" if request.param == "torch" else request.getfixturevalue("library")
    monkeypatch.setattr(compiled, "library", lambda: use)
    return digest.digest
