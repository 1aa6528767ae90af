"""Digests of tensors where they lie, in one pass, with counts and norms of floating-point ones.

    from diagd.cuda_ext.digest import begin, digest

    digest(parameter).bits
    pending = begin(parameters)      # on a GPU: enqueues, and returns at once
    ...
    if pending.ready():
        digests = pending.result()

What a digest is says definition.py. It is of the tensor's logical elements, so a view digests as its contiguous copy,
and neither dtype nor shape enters. Only plain tensors have one (elements.refuse_what_has_no_bytes): of a DTensor pass
the local tensor. No whole tensor is ever copied; what is added is at most 64 MiB.
"""

from collections.abc import Sequence

import torch

from diagd.cuda_ext import compiled, twin
from diagd.cuda_ext.elements import KINDS, is_plain_memory, pieces, refuse_what_has_no_bytes, undisturbed
from diagd.cuda_ext.pending import Pending
from diagd.cuda_ext.sums import Digest, Sums

__all__ = ["Digest", "Pending", "begin", "digest", "digest_many", "digest_rows", "status"]


def digest(tensor: torch.Tensor, *, statistics: bool = True) -> Digest:
    """Digest one tensor; waits for a device's. Without statistics it costs less, and all but the bits is None.

    Raises:
        TypeError: The tensor has no bytes of its own, or lies elsewhere than on a CPU or CUDA device.
    """
    return digest_many([tensor], statistics=statistics)[0]


def digest_many(tensors: Sequence[torch.Tensor], *, statistics: bool = True) -> list[Digest]:
    """Digest all, in their order, with as few launches on each device as there can be; waits for the devices.

    Raises:
        TypeError: As for digest().
    """
    return begin(tensors, statistics=statistics).result()


def begin(tensors: Sequence[torch.Tensor], *, statistics: bool = True) -> Pending:
    """Digest what lies on CPUs and enqueue the rest on each device's current stream, without waiting for any.

    The result is of the values that the tensors have at this point of the stream. Until it is taken, or ready() was
    true, the tensors are kept alive.

    Raises:
        TypeError: As for digest().
        RuntimeError: The current stream is being captured into a CUDA graph.
    """
    for tensor in tensors:
        refuse_what_has_no_bytes(tensor)
    with undisturbed():
        kinds = [KINDS.get(tensor.dtype, 0) if statistics else 0 for tensor in tensors]
        pending = Pending(tensors, kinds)
        pending.put(_on_hosts([(i, t, kinds[i]) for i, t in enumerate(tensors) if t.device.type == "cpu"]))
        return pending


def digest_rows(tensor: torch.Tensor, *, statistics: bool = True) -> list[Digest]:
    """Digest each index of the first dimension by itself, to find where two tensors differ; waits for a device's.

    Raises:
        TypeError: As for digest().
        ValueError: The tensor has no dimension.
    """
    refuse_what_has_no_bytes(tensor)
    if tensor.dim() == 0:
        raise ValueError("a tensor without dimensions has no rows; expected one of at least one dimension")
    with undisturbed():
        rows = list(tensor.detach().unbind(0))
    return digest_many(rows, statistics=statistics)


def status() -> dict[str, str]:
    """By which path tensors are digested on a CPU and on a GPU, and why not by a faster one."""
    library = compiled.library()
    return {"cpu": f"torch operations: {library}" if isinstance(library, str) else "compiled"}


def _on_hosts(tensors: Sequence[tuple[int, torch.Tensor, int]]) -> dict[int, Sums]:
    library = compiled.library()
    if isinstance(library, str):
        return {index: _by_torch(tensor, kind) for index, tensor, kind in tensors}
    plain = [one for one in tensors if is_plain_memory(one[1])]
    whole = library.sums([compiled.Piece(t.data_ptr(), t.numel() * t.element_size(), 0, kind) for _, t, kind in plain])
    found = {index: sums for (index, _, _), sums in zip(plain, whole, strict=True)}
    for index, tensor, kind in tensors:
        if index not in found:
            found[index] = _gathered(library, tensor, kind)
    return found


def _by_torch(tensor: torch.Tensor, kind: int) -> Sums:
    found = Sums()
    for flat, first_block in pieces(tensor):
        found = found.with_(twin.on_host(flat, first_block, kind))
    return found


def _gathered(library: compiled.Library, tensor: torch.Tensor, kind: int) -> Sums:
    found = Sums()
    for flat, first_block in pieces(tensor):
        piece = compiled.Piece(flat.data_ptr(), flat.numel() * flat.element_size(), first_block, kind)
        found = found.with_(library.sums([piece])[0])
    return found
