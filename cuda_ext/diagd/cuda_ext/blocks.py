"""Blocks of tensors: elements that lie here, and which elements of the whole tensor they are."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import torch

from diagd.cuda_ext.elements import is_plain_memory

HOST_ELEMENTS = 1 << 16  # at once, in torch operations: what these make of them stays in a second-level cache
DEVICE_ELEMENTS = 1 << 19  # and on a device: buffers of 4 MiB, a few of them


class Block(NamedTuple):
    """A tensor that is a part of a whole one: the index there of its first element, and what a step along each of its
    dimensions adds to it."""

    tensor: torch.Tensor
    first: int
    steps: tuple[int, ...]


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """What a step along each dimension adds to the index of an element."""
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


def block_at(tensor: torch.Tensor, offsets: Sequence[int], shape: Sequence[int]) -> Block:
    """The tensor as the block at these offsets in a whole one of this shape."""
    steps = row_major(shape)
    return Block(tensor, sum(offset * step for offset, step in zip(offsets, steps, strict=True)), steps)


def run_at(tensor: torch.Tensor, first: int) -> Block:
    """The elements of the tensor, in row-major order, as those from `first` on of a whole one."""
    return Block(tensor, first, row_major(tensor.shape))


class Walk(NamedTuple):
    """How to come by each element of a block: sizes, strides in elements and steps; as few dimensions as can be."""

    tensor: torch.Tensor
    first: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]


def walk(block: Block) -> Walk:
    """A block that is not empty, of elements of at most 8 bytes: of one of 16 bytes both halves."""
    tensor, first, steps = block.tensor.detach(), block.first, block.steps
    if not is_plain_memory(tensor):
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.element_size() == 16:
        tensor, first, steps = torch.view_as_real(tensor), 2 * first, (*(2 * step for step in steps), 1)
    dims: list[tuple[int, int, int]] = []
    for size, stride, step in zip(tensor.shape, tensor.stride(), steps, strict=True):
        outer = dims[-1] if dims else None
        if size == 1:
            continue
        if outer is not None and outer[1:] == (size * stride, size * step):
            dims[-1] = outer[0] * size, stride, step
        else:
            dims.append((size, stride, step))
    sizes, strides, steps = zip(*dims or [(1, 1, 1)], strict=True)
    return Walk(tensor, first, sizes, strides, steps)


def indices(found: Walk, start: int, stop: int) -> torch.Tensor:
    """The indices in the whole of its elements from `start` to `stop`, in its row-major order: int64 there."""
    place = torch.arange(start, stop, device=found.tensor.device)
    if len(found.sizes) == 1:  # the usual case, and divisions are slow
        return place.mul_(found.steps[0]).add_(found.first)
    inner, index = 1, torch.full_like(place, found.first)
    for size, step in zip(reversed(found.sizes), reversed(found.steps), strict=True):
        index += (place // inner % size) * step
        inner *= size
    return index


def chunks(found: Walk) -> Iterator[tuple[torch.Tensor, int]]:
    """Its elements, flat, some at once, and how many came before them; nothing larger is copied."""
    flat = torch.as_strided(found.tensor, found.sizes, found.strides)
    most = HOST_ELEMENTS if found.tensor.device.type == "cpu" else DEVICE_ELEMENTS
    yield from _chunks(flat, 0, most)


def _chunks(tensor: torch.Tensor, before: int, most: int) -> Iterator[tuple[torch.Tensor, int]]:
    if tensor.numel() <= most:
        yield tensor.reshape(-1), before
        return
    row = tensor[0].numel()
    if row > most:
        for index in range(len(tensor)):
            yield from _chunks(tensor[index], before + index * row, most)
        return
    rows = most // row
    for start in range(0, len(tensor), rows):
        part = tensor[start : start + rows]
        yield part.reshape(-1), before + start * row
