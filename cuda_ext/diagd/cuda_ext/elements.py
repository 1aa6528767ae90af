"""A tensor as a row of bytes: which tensors have one, and how to walk over it without copying the whole."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from operator import attrgetter
from typing import Any

import torch
import torch.utils._python_dispatch

from diagd.cuda_ext.definition import BLOCK_BYTES

# What digest.c and digest.cu call these; 0 stands for every other dtype, of which only the bits are digested.
KINDS = {torch.float32: 1, torch.float64: 2, torch.float16: 3, torch.bfloat16: 4}
HOST_PIECE_BYTES = 4 * BLOCK_BYTES  # stays in a second-level cache
DEVICE_PIECE_BYTES = 64 * BLOCK_BYTES


def _api(path: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """One of torch's private functions, or what does in its place where this torch has it no more (or not yet)."""
    try:
        found: Callable[..., Any] = attrgetter(path)(torch)
        return found
    except AttributeError:
        return otherwise


_is_functional = _api("_is_functional_tensor", lambda tensor: False)
_is_transformed = _api("_C._functorch.is_functorch_wrapped_tensor", lambda tensor: False)
_count_of_dispatch_modes = _api("_C._len_torch_dispatch_stack", lambda: 0)
_without_dispatch_modes = _api("utils._python_dispatch._disable_current_modes", nullcontext)
_without_function_modes = _api("_C.DisableTorchFunction", nullcontext)


def refuse_what_has_no_bytes(tensor: torch.Tensor) -> None:
    """Let only plain, dense tensors with memory of their own pass.

    Raises:
        TypeError: The tensor is a wrapper around others or around nothing (DTensor, fake, functional, vmapped), is
            sparse or quantized, or lies on a device that is neither a CPU nor a CUDA one.
        ValueError: Its memory was freed behind it, as FSDP does between two uses of a parameter.
    """
    name = type(tensor).__name__
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise TypeError(f"a {name} has no bytes of its own; expected a plain tensor, e.g. a DTensor's to_local()")
    if _is_functional(tensor) or _is_transformed(tensor):
        raise TypeError("a tensor inside a functional transform has no bytes of its own")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(f"expected a dense tensor, not one of layout {tensor.layout} and dtype {tensor.dtype}")
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"expected a tensor on a CPU or a CUDA device, not on {tensor.device}")
    if tensor.numel() and tensor.untyped_storage().nbytes() < _end(tensor):
        raise ValueError("the tensor's memory is freed at this time; expected one that could be read")


def _end(tensor: torch.Tensor) -> int:
    """The byte of its storage after the last that belongs to it."""
    if tensor.is_contiguous():  # nearly all are, and this is much cheaper
        return int(tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) * tensor.element_size()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep autograd and the modes that the script has switched on out of what follows, and it out of their sight."""
    seen = _without_dispatch_modes if _count_of_dispatch_modes() else nullcontext
    with torch.no_grad(), _without_function_modes(), seen():
        yield


def is_plain_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor's bytes lie in memory as they are digested: row by row, nothing pending."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def pieces(tensor: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
    """Yield the elements in row-major order as flat tensors, each with the index of its first block.

    A contiguous tensor comes whole and as it lies. Any other is gathered piece by piece into one buffer: use each piece
    before taking the next.
    """
    if is_plain_memory(tensor):
        yield tensor.detach().reshape(-1), 0
        return
    nbytes = HOST_PIECE_BYTES if tensor.device.type == "cpu" else DEVICE_PIECE_BYTES
    size = min(nbytes // tensor.element_size(), tensor.numel())
    buffer = torch.empty(size, dtype=tensor.dtype, device=tensor.device)
    for start in range(0, tensor.numel(), size):
        piece = buffer[: min(size, tensor.numel() - start)]
        gather(tensor.detach(), start, piece)
        yield piece, start * tensor.element_size() // BLOCK_BYTES


def gather(source: torch.Tensor, start: int, out: torch.Tensor) -> None:
    """Copy the elements of `source` from `start` on, in row-major order, until the flat `out` is full."""
    if source.dim() < 2:
        out.copy_(source.reshape(-1)[start : start + out.numel()])
        return
    row, stop = source[0].numel(), start + out.numel()
    first, last = -(-start // row), stop // row
    if first > last:  # inside one row
        gather(source[last], start - last * row, out)
        return
    head, tail = first * row - start, last * row - start
    if head:
        gather(source[first - 1], start - (first - 1) * row, out[:head])
    if last > first:
        out[head:tail].view(last - first, *source.shape[1:]).copy_(source[first:last])
    if tail < out.numel():
        gather(source[last], 0, out[tail:])
