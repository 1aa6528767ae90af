"""Additive digests of tensors and of their parts, where they lie.

    from diagd.cuda_ext.adding import begin, block_at, digest

    mine = begin([[block_at(local, offsets, shape)]]).result()[0]  # on each rank
    digest(sum(mine over the parts), nbytes of the whole)

What that is says additive.py. On a device everything is enqueued and nothing waited for.
"""

from collections.abc import Sequence

import torch

from diagd.cuda_ext import adder
from diagd.cuda_ext.blocks import Block, Walk, block_at, chunks, indices, run_at, walk
from diagd.cuda_ext.definition import GOLDEN, MASK, finish
from diagd.cuda_ext.elements import refuse_what_has_no_bytes, undisturbed
from diagd.cuda_ext.twin import mixed, signed

__all__ = ["Block", "Totals", "begin", "block_at", "digest", "run_at", "whole"]

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def whole(tensor: torch.Tensor) -> int:
    """The digest of one tensor that is not split; waits for a device's.

    Raises:
        TypeError, ValueError: As for begin().
    """
    return digest(begin([[run_at(tensor, 0)]]).result()[0], tensor.numel() * tensor.element_size())


def digest(total: int, nbytes: int) -> int:
    """Of the whole tensor: from the sum of its parts' totals, and its size."""
    return finish(total & MASK, nbytes)


class Totals:
    """The totals of some parts, in their order, some of them perhaps still on their way from a device."""

    def __init__(self, blocks: Sequence[Block], totals: list[int]) -> None:
        self._blocks = blocks  # freed too early, another stream could write their memory
        self._totals = totals
        self._flights: list[tuple[list[int], torch.Tensor, torch.Event | None]] = []

    def follow(self, places: list[int], found: torch.Tensor) -> None:
        """Take what a device has for these places, int64 [places], when the current stream has come to it."""
        if found.device.type == "cpu":
            self._flights.append((places, found, None))
            return
        copy = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
        copy.copy_(found, non_blocking=True)
        event = torch.Event(device=found.device)
        event.record()
        self._flights.append((places, copy, event))

    def ready(self) -> bool:
        """Whether result() need not wait; never waits itself."""
        return all(event is None or event.query() for _, _, event in self._flights)

    def result(self) -> list[int]:
        """The totals, 0 to 2^64 - 1; waits for the devices where they are not done."""
        for places, found, event in self._flights:
            if event is not None:
                event.synchronize()
            for place, total in zip(places, found.tolist(), strict=True):
                self._totals[place] = (self._totals[place] + total) & MASK
        self._flights, self._blocks = [], ()
        return list(self._totals)


def begin(parts: Sequence[Sequence[Block]]) -> Totals:
    """Add up each of these parts, of one block or several: at once on CPUs, enqueued on each device's current stream.

    Raises:
        TypeError, ValueError: A tensor has no bytes of its own (elements.refuse_what_has_no_bytes).
        RuntimeError: The current stream is being captured into a CUDA graph.
    """
    blocks = [(place, block) for place, part in enumerate(parts) for block in part if block.tensor.numel()]
    for _, block in blocks:
        refuse_what_has_no_bytes(block.tensor)
    totals = Totals([block for _, block in blocks], [0] * len(parts))
    with undisturbed():
        walks = [(place, walk(block)) for place, block in blocks]
        for device in {found.tensor.device for _, found in walks}:
            _begin([(place, found) for place, found in walks if found.tensor.device == device], device, totals)
    return totals


def _begin(walks: Sequence[tuple[int, Walk]], device: torch.device, totals: Totals) -> None:
    if device.type == "cpu":
        found = [_on_host(one) for _, one in walks]
        totals.follow([place for place, _ in walks], torch.tensor(list(map(signed, found)), dtype=torch.int64))
        return
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("the current stream is being captured into a CUDA graph; begin before or after that")
        totals.follow([place for place, _ in walks], torch.stack([by_torch(one) for _, one in walks]))


def _on_host(found: Walk) -> int:
    compiled = adder.adder()
    if isinstance(compiled, str) or len(found.sizes) > adder.MAX_DIMS:
        return int(by_torch(found)) & MASK
    return compiled.total(found)


def by_torch(found: Walk) -> torch.Tensor:
    """The total in torch operations, nothing read back: int64 [] on the tensor's device."""
    total = torch.zeros((), dtype=torch.int64, device=found.tensor.device)
    for flat, before in chunks(found):
        bits = flat.view(_INTEGERS[flat.element_size()]).to(torch.int64, copy=True)
        if flat.element_size() < 8:
            bits &= (1 << 8 * flat.element_size()) - 1
        index = indices(found, before, before + len(flat))
        total += mixed(bits.add_(index.add_(1).mul_(signed(GOLDEN)))).sum()
    return total
