"""The additive digest's compiled path on CPUs: a function of the library that compiled.py finds."""

import ctypes
from functools import cache

from diagd.cuda_ext import compiled
from diagd.cuda_ext.additive import SELF_TEST_BYTES, SELF_TEST_FIRST, SELF_TEST_TOTALS
from diagd.cuda_ext.blocks import Walk
from diagd.cuda_ext.definition import self_test_bytes

MAX_DIMS = 16  # as in additive.c


class Adder:
    """The function, found to follow the definition.

    Raises:
        OSError: There is no library, or it is not for this machine.
        ValueError: It is another version's.
    """

    def __init__(self, library: "compiled.Library | str") -> None:
        if isinstance(library, str):
            raise FileNotFoundError(library)
        self._add = library.find("diagd_add")
        self._add.restype = ctypes.c_uint64
        memory = ctypes.create_string_buffer(self_test_bytes()[:SELF_TEST_BYTES], SELF_TEST_BYTES)
        address = ctypes.addressof(memory)
        for size, expected in SELF_TEST_TOTALS.items():
            if self.add(address, size, (SELF_TEST_BYTES // size,), (size,), SELF_TEST_FIRST, (1,)) != expected:
                raise ValueError("the library follows another definition of the additive digest: install diagd anew")

    def add(
        self, address: int, size: int, sizes: tuple[int, ...], strides: tuple[int, ...], first: int,
        steps: tuple[int, ...],
    ) -> int:  # fmt: skip
        """The total of the elements there, of so many bytes each; strides in bytes."""
        dims = len(sizes)
        words, signed = ctypes.c_uint64 * dims, ctypes.c_int64 * dims
        found: int = self._add(
            ctypes.c_uint64(address), ctypes.c_uint32(size), ctypes.c_uint32(dims),
            words(*sizes), signed(*strides), ctypes.c_uint64(first), words(*steps),
        )  # fmt: skip
        return found

    def total(self, found: Walk) -> int:
        """Of a block in the CPU's memory, of at most MAX_DIMS dimensions."""
        size = found.tensor.element_size()
        strides = tuple(stride * size for stride in found.strides)
        return self.add(found.tensor.data_ptr(), size, found.sizes, strides, found.first, found.steps)


@cache
def adder() -> Adder | str:
    """The function, or in words why it is not used."""
    try:
        return Adder(compiled.library())
    except (OSError, ValueError) as error:
        return str(error)
