"""The kernel of digest.ptx through the CUDA driver's own library: no compiler, no headers, no version of torch's.

The driver compiles PTX for its device when it is loaded, which takes a part of a second once (it keeps the result under
~/.nv), and may wait for the device: load before the first step.
"""

import ctypes
from functools import cache
from pathlib import Path

import torch

PTX = Path(__file__).with_name("digest.ptx")
THREADS = 256  # of a thread block, as in digest.cu


class Kernel:
    """Both entry points, loaded into a device's primary context, the one that torch uses.

    Args:
        device: The device's index as torch counts.

    Raises:
        OSError: There is no driver, or no kernel beside this file.
        RuntimeError: The driver refuses.
    """

    def __init__(self, device: int) -> None:
        if torch.version.cuda is None:
            raise RuntimeError("this torch is not built for CUDA")
        self._cuda = ctypes.CDLL("libcuda.so.1")
        handle, self._context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(handle), device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX.read_bytes()))
            self._tiles, self._fold = (self._function(module, name) for name in (b"tiles", b"fold"))
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def launch(self, jobs: int, tiles: int, table: int, sums: int, results: int) -> None:
        """Enqueue both on the current stream: so many jobs and tiles, and the addresses of what digest.cu calls so.

        Raises:
            RuntimeError: The driver refuses.
        """
        arguments = ctypes.c_uint64(table), ctypes.c_uint32(jobs), ctypes.c_uint64(sums), ctypes.c_uint64(results)
        pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(one) for one in arguments))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            for function, blocks in ((self._tiles, tiles), (self._fold, jobs)):
                self._call("cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, stream, pointers, None)
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _function(self, module: ctypes.c_void_p, name: bytes) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"diagd_digest_" + name)
        return function

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")


@cache
def kernel(device: int) -> Kernel | str:
    """The kernel for a device, or in words why it is not used."""
    try:
        return Kernel(device)
    except (OSError, RuntimeError, AttributeError) as error:
        return str(error)
