"""Digests that may still be on their way from a device."""

import struct
from collections.abc import Mapping, Sequence

import torch

from diagd.cuda_ext.sums import Digest, Sums

_ROW = struct.Struct("=2Q2d")


class Pending:
    """The digests of some tensors, in their order, some of them perhaps not known yet."""

    def __init__(self, tensors: Sequence[torch.Tensor], kinds: Sequence[int]) -> None:
        self._tensors: Sequence[torch.Tensor] = tensors  # freed too early, another stream could write their memory
        self._nbytes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        self._kinds = kinds
        self._sums: dict[int, Sums] = {}
        self._flights: list[tuple[Sequence[int], torch.Tensor, torch.Event]] = []

    def put(self, sums: Mapping[int, Sums]) -> None:
        """Take what has been added up for the tensors at these indices."""
        self._sums.update(sums)

    def follow(self, indices: Sequence[int], results: torch.Tensor) -> None:
        """Take device.enqueue()'s rows for these indices, when the current stream has come to them."""
        if results.device.type == "cpu":
            self.put(dict(zip(indices, _rows(results), strict=True)))
            return
        copy = torch.empty(results.shape, dtype=results.dtype, pin_memory=True)
        copy.copy_(results, non_blocking=True)
        event = torch.Event(device=results.device)
        event.record()
        self._flights.append((indices, copy, event))

    def ready(self) -> bool:
        """Whether result() need not wait; never waits itself."""
        if not all(event.query() for _, _, event in self._flights):
            return False
        self._land()
        return True

    def result(self) -> list[Digest]:
        """The digests; waits for the devices where they are not done."""
        for _, _, event in self._flights:
            event.synchronize()
        self._land()
        kinds = enumerate(zip(self._nbytes, self._kinds, strict=True))
        return [self._sums[i].digest(nbytes, kind) for i, (nbytes, kind) in kinds]

    def _land(self) -> None:
        for indices, copy, _ in self._flights:
            self.put(dict(zip(indices, _rows(copy), strict=True)))
        self._flights, self._tensors = [], ()


def _rows(results: torch.Tensor) -> list[Sums]:
    return [Sums(*_ROW.unpack(struct.pack("=4q", *row))) for row in results.tolist()]
