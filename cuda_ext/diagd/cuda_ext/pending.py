"""Digests that may still be on their way from a device."""

from collections.abc import Mapping, Sequence

import torch

from diagd.cuda_ext.sums import Digest, Sums


class Pending:
    """The digests of some tensors, in their order, some of them perhaps not known yet."""

    def __init__(self, tensors: Sequence[torch.Tensor], kinds: Sequence[int]) -> None:
        self._nbytes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        self._kinds = kinds
        self._sums: dict[int, Sums] = {}

    def put(self, sums: Mapping[int, Sums]) -> None:
        """Take what has been added up for the tensors at these indices."""
        self._sums.update(sums)

    def ready(self) -> bool:
        """Whether result() need not wait; never waits itself."""
        return True

    def result(self) -> list[Digest]:
        """The digests; waits for the devices where they are not done."""
        return [
            self._sums[i].digest(nbytes, kind)
            for i, (nbytes, kind) in enumerate(zip(self._nbytes, self._kinds, strict=True))
        ]
