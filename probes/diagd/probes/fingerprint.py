"""Fingerprints of what goes into a model: a hash of a bounded part of its first tensors, in some ten microseconds.

Equal fingerprints at step after step mean equal inputs; unequal ones mean that they differ. 52 bits are kept, which a
float64 holds exactly, so that they travel as scalars do: two different inputs agree by chance with 2^-52. A tensor on a
CPU is read where it lies, without any operation of torch's; one on a device is digested there, and nobody waits for it.
"""

import ctypes
import hashlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from diagd.probes import digest, inventory

TENSORS = 4  # of one input
DEPTH = 3  # of containers inside each other
PIECES = 4  # places of a large tensor that are read
PIECE_BYTES = 512
MAX_PENDING = 64
_BITS = 52

_pending: list[tuple[digest.Pending, Callable[[int], None]]] = []


def take(value: Any, tell: Callable[[int], None]) -> bool:
    """Fingerprint the tensors in a value and tell it, at once or when the device has come so far.

    Returns:
        Whether there is any tensor to go by.
    """
    found = tensors(value)
    if not found:
        return False
    if all(tensor.device.type == "cpu" for tensor in found):
        hashed = hashlib.blake2b(digest_size=8)
        for tensor in found:
            hashed.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            for piece in _pieces(tensor):
                hashed.update(piece)
        tell(int.from_bytes(hashed.digest(), "little") >> (64 - _BITS))
    elif len(_pending) < MAX_PENDING and not sys.modules["torch"].cuda.is_current_stream_capturing():
        _pending.append((digest.Pending([_sampled(tensor) for tensor in found]), tell))
    return True


def tensors(value: Any) -> list[Any]:
    """The first tensors in a value."""
    return [tensor for _, tensor in zip(range(TENSORS), _tensors(value, DEPTH), strict=False)]


def collect() -> None:
    """Tell the fingerprints that devices have finished."""
    while _pending and _pending[0][0].ready():
        pending, tell = _pending.pop(0)
        tell(of_bytes(b"".join(bits.to_bytes(8, "little", signed=True) for bits in pending.bits())))


def pending() -> bool:
    """Whether devices still have some to finish."""
    return bool(_pending)


def of_bytes(data: Any) -> int:
    """The fingerprint of some bytes."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> (64 - _BITS)


def _tensors(value: Any, depth: int) -> Iterator[Any]:
    """The plain tensors in nested containers; only types are asked, so no code of the script's runs."""
    kind = type(value)
    if hasattr(kind, "untyped_storage"):
        tensor = inventory.local(value)
        if tensor is not None and not tensor.is_conj() and not tensor.is_neg():
            yield tensor
    elif depth and (tuple in kind.__mro__ or list in kind.__mro__):
        for part in tuple.__iter__(value) if tuple in kind.__mro__ else list.__iter__(value):
            yield from _tensors(part, depth - 1)
    elif depth and dict in kind.__mro__:
        for part in dict.values(value):
            yield from _tensors(part, depth - 1)
    elif depth and any(base.__name__ == "UserDict" for base in kind.__mro__):  # as tokenizers' batches are
        yield from _tensors(value.__dict__.get("data"), depth - 1)


def _pieces(tensor: Any) -> Iterator[bytes]:
    """All bytes of a small tensor that lies in one row; of any other, pieces evenly spread over its elements."""
    size, count, start = tensor.element_size(), tensor.numel(), tensor.data_ptr()
    whole = tensor.is_contiguous()
    if whole and count * size <= PIECES * PIECE_BYTES:
        yield ctypes.string_at(start, count * size)
        return
    most = max(PIECE_BYTES // size, 1)
    for number in range(PIECES):
        place = (count - 1) * number // (PIECES - 1)
        offset, along = (place, count - place) if whole else _located(tensor, place)
        yield ctypes.string_at(start + offset * size, min(along, most) * size)


def _located(tensor: Any, place: int) -> tuple[int, int]:
    """Where the element at that place of the row-major order lies, and how many of its row lie side by side there."""
    offset, along = 0, 0
    for extent, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        place, index = divmod(place, extent)
        offset += index * stride
        along = along or (extent - index if stride == 1 else 1)
    return offset, along


def _sampled(tensor: Any) -> Any:
    """A view of a device's tensor, of a bounded number of elements."""
    tensor = tensor.detach()
    wanted = PIECES * PIECE_BYTES // tensor.element_size()
    every = max(1, round((tensor.numel() / wanted) ** (1 / max(tensor.dim(), 1))))
    return tensor[(slice(None, None, every),) * tensor.dim()] if every > 1 else tensor
