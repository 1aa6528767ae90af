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
from itertools import pairwise

import torch

from diagd.cuda_ext import compiled, driver, twin
from diagd.cuda_ext.device import Task, enqueue
from diagd.cuda_ext.elements import KINDS, is_plain_memory, pieces, refuse_what_has_no_bytes, undisturbed
from diagd.cuda_ext.pending import Pending
from diagd.cuda_ext.sums import Digest, Sums

__all__ = ["Digest", "Pending", "begin", "begin_rows", "digest", "digest_many", "digest_rows", "prepare", "status"]


def digest(tensor: torch.Tensor, *, statistics: bool = True) -> Digest:
    """Digest one tensor; waits for a device's. Without statistics it costs less, and all but the bits is None.

    Raises:
        TypeError: The tensor has no bytes of its own, or lies elsewhere than on a CPU or CUDA device.
        ValueError: Its memory is freed at this time.
    """
    return digest_many([tensor], statistics=statistics)[0]


def digest_many(tensors: Sequence[torch.Tensor], *, statistics: bool = True) -> list[Digest]:
    """Digest all, in their order, with as few launches on each device as there can be; waits for the devices.

    Raises:
        TypeError, ValueError: As for digest().
    """
    return begin(tensors, statistics=statistics).result()


def begin(tensors: Sequence[torch.Tensor], *, statistics: bool = True) -> Pending:
    """Digest what lies on CPUs and enqueue the rest on each device's current stream, without waiting for any.

    The result is of the values that the tensors have at this point of the stream. Until it is taken, or ready() was
    true, the tensors are kept alive.

    Raises:
        TypeError, ValueError: As for digest().
        RuntimeError: The current stream is being captured into a CUDA graph.
    """
    for tensor in tensors:
        refuse_what_has_no_bytes(tensor)
    with undisturbed():
        kinds = [KINDS.get(tensor.dtype, 0) if statistics else 0 for tensor in tensors]
        tasks = [Task(i, tensor, kind) for i, (tensor, kind) in enumerate(zip(tensors, kinds, strict=True))]
        pending = Pending(tensors, kinds)
        for device in {tensor.device for tensor in tensors if tensor.device.type == "cuda"}:
            _enqueue([task for task in tasks if task.tensor.device == device], device, pending)
        pending.put(_on_hosts([task for task in tasks if task.tensor.device.type == "cpu"]))
        return pending


def begin_rows(tensor: torch.Tensor, edges: Sequence[int], *, statistics: bool = True) -> Pending:
    """Likewise of the rows (first dimension) from each of these edges to the next, each run of them by itself.

    Raises:
        TypeError, RuntimeError: As for begin().
        ValueError: As for begin(), or the tensor has no dimension, or not these rows.
    """
    refuse_what_has_no_bytes(tensor)
    if tensor.dim() == 0 or any(not 0 <= a < b <= tensor.shape[0] for a, b in pairwise(edges)):
        raise ValueError(f"a tensor of shape {list(tensor.shape)} has no rows between {list(edges)[:4]}…")
    with undisturbed():
        runs = [tensor.detach()[start:stop] for start, stop in pairwise(edges)]
    return begin(runs, statistics=statistics)


def prepare(device: torch.device) -> str:
    """Load what digests tensors of that device, before the first step: it takes a moment, and may wait for the device.

    Returns:
        In words, by which path they will be digested, and why not by a faster one.
    """
    if device.type == "cpu":
        used: object = compiled.library()
    else:
        used = driver.kernel(torch.empty(0, device=device).device.index)  # of the current one, where none is named
    return f"torch operations: {used}" if isinstance(used, str) else "compiled"


def digest_rows(tensor: torch.Tensor, *, statistics: bool = True) -> list[Digest]:
    """Digest each index of the first dimension by itself, to find where two tensors differ; waits for a device's.

    Raises:
        TypeError: As for digest().
        ValueError: As for digest(), or the tensor has no dimension.
    """
    refuse_what_has_no_bytes(tensor)
    if tensor.dim() == 0:
        raise ValueError("a tensor without dimensions has no rows; expected one of at least one dimension")
    with undisturbed():
        rows = list(tensor.detach().unbind(0))
    return digest_many(rows, statistics=statistics)


def status() -> dict[str, str]:
    """What prepare() says of the CPU, and of the current CUDA device if the process uses one."""
    found = {"cpu": prepare(torch.device("cpu"))}
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        device = torch.device("cuda", torch.cuda.current_device())
        found[str(device)] = prepare(device)
    return found


def _enqueue(tasks: Sequence[Task], device: torch.device, pending: Pending) -> None:
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("the current stream is being captured into a CUDA graph; begin before or after that")
        kernel = driver.kernel(device.index)
        pending.follow(*enqueue(tasks, None if isinstance(kernel, str) else kernel))


def _on_hosts(tasks: Sequence[Task]) -> dict[int, Sums]:
    library = compiled.library()
    if isinstance(library, str):
        return {place: _by_torch(tensor, kind) for place, tensor, kind in tasks}
    plain = [task for task in tasks if is_plain_memory(task.tensor)]
    whole = library.sums([compiled.Piece(t.data_ptr(), t.numel() * t.element_size(), 0, kind) for _, t, kind in plain])
    found = {task.place: sums for task, sums in zip(plain, whole, strict=True)}
    for place, tensor, kind in tasks:
        if place not in found:
            found[place] = _gathered(library, tensor, kind)
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
