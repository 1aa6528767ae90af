"""The compiled path on CPUs: finds the library that an installation with a C compiler has built beside this file.

ctypes lets go of the GIL during a call, and the library knows neither Python's nor torch's ABI.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from diagd.cuda_ext.definition import SELF_TEST_BYTES, SELF_TEST_DIGEST, self_test_bytes
from diagd.cuda_ext.sums import Sums

LIBRARY = Path(__file__).with_name("_digest.so")


class Piece(NamedTuple):
    """Memory to digest: where it lies, how many bytes, the index of its first block, the kind of its elements."""

    address: int
    nbytes: int
    first_block: int
    kind: int


class _Sums(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_uint64),
        ("nonfinite", ctypes.c_uint64),
        ("square_sum", ctypes.c_double),
        ("absmax", ctypes.c_double),
    )


class Library:
    """The library, loaded and found to follow the definition.

    Raises:
        OSError: It is not there, or not for this machine.
        ValueError: It is another version's: it follows another definition.
    """

    def __init__(self, path: Path = LIBRARY) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"{path.name} was not built (python -m diagd.cuda_ext.build)")
        self._path, self._library = path, ctypes.CDLL(str(path))
        self._digest = self.find("diagd_digest")
        self._digest.restype = None
        data = self_test_bytes()
        memory = ctypes.create_string_buffer(data, SELF_TEST_BYTES)
        (found,) = self.sums([Piece(ctypes.addressof(memory), SELF_TEST_BYTES, 0, 0)])
        if found.digest(SELF_TEST_BYTES, 0).bits != SELF_TEST_DIGEST:
            raise ValueError(f"{path.name} follows another definition: install diagd anew")

    def find(self, name: str) -> Any:
        """One of its functions.

        Raises:
            ValueError: It has none of that name: it is another version's.
        """
        try:
            return getattr(self._library, name)
        except AttributeError as error:
            raise ValueError(f"{self._path.name} is another version's") from error

    def sums(self, pieces: Sequence[Piece]) -> list[Sums]:
        """One after the other, in one call."""
        count = len(pieces)
        columns = zip(*pieces, strict=True) if pieces else ((), (), (), ())
        address, nbytes, first_block, kind = columns
        words, out = ctypes.c_uint64 * count, (_Sums * count)()
        self._digest(
            ctypes.c_size_t(count), words(*address), words(*nbytes), words(*first_block),
            (ctypes.c_int32 * count)(*kind), out,
        )  # fmt: skip
        return [Sums(one.total, one.nonfinite, one.square_sum, one.absmax) for one in out]


@cache
def library() -> Library | str:
    """The library, or in words why it is not used."""
    try:
        return Library()
    except (OSError, ValueError) as error:
        return str(error)
