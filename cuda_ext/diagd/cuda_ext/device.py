"""Digests on a device: many tensors in one launch, with nothing read back."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from diagd.cuda_ext import twin
from diagd.cuda_ext.definition import BLOCK_BYTES
from diagd.cuda_ext.elements import is_plain_memory, pieces

TILE_BYTES = BLOCK_BYTES // 4  # what one thread block reads, as in digest.cu


class Launches(Protocol):
    """What driver.Kernel does."""

    def launch(self, jobs: int, tiles: int, table: int, sums: int, results: int) -> None:
        """Enqueue the kernel."""


class Task(NamedTuple):
    """A tensor to digest: its place among the caller's, and the kind of its elements."""

    place: int
    tensor: torch.Tensor
    kind: int


class Job(NamedTuple):
    """A row of the kernel's table, but for where its tiles and sums begin."""

    address: int
    nbytes: int
    first_block: int
    kind: int


def enqueue(tasks: Sequence[Task], kernel: Launches | None) -> tuple[list[int], torch.Tensor]:
    """Digest tensors of one device, which is the current one; without a kernel in torch's operations.

    Returns:
        The tasks' places in the order of the rows, and int64 [tasks, 4] on the device: ΣF, the count of non-finite
        elements, and the bits of two float64, the sum of squares and the largest magnitude.
    """
    tasks = sorted(tasks, key=lambda task: not is_plain_memory(task.tensor))
    results = torch.zeros(len(tasks), 4, dtype=torch.int64, device=tasks[0].tensor.device)
    plain = sum(is_plain_memory(task.tensor) for task in tasks) if kernel else 0
    if kernel and plain:
        _launch(kernel, [_job(task.tensor, 0, task.kind) for task in tasks[:plain]], results)
    for row in range(plain, len(tasks)):
        for flat, first_block in pieces(tasks[row].tensor):
            if kernel:
                _launch(kernel, [_job(flat, first_block, tasks[row].kind)], results[row:])
            else:
                _add_by_torch(flat, first_block, tasks[row].kind, results[row])
    return [task.place for task in tasks], results


def _job(tensor: torch.Tensor, first_block: int, kind: int) -> Job:
    return Job(tensor.data_ptr(), tensor.numel() * tensor.element_size(), first_block, kind)


def _launch(kernel: Launches, jobs: Sequence[Job], results: torch.Tensor) -> None:
    rows, tiles, blocks = [], 0, 0
    for job in jobs:
        rows.append((*job, tiles, blocks))
        tiles += -(-job.nbytes // TILE_BYTES)
        blocks += -(-job.nbytes // BLOCK_BYTES)
    if not tiles:
        return
    on_cuda = results.device.type == "cuda"
    # Pinned, as only then the copy is one that the host does not wait for.
    table = torch.tensor(rows, dtype=torch.int64, pin_memory=on_cuda).to(results.device, non_blocking=True)
    sums = torch.zeros(blocks, 2, dtype=torch.int64, device=results.device)
    kernel.launch(len(rows), tiles, table.data_ptr(), sums.data_ptr(), results.data_ptr())


def _add_by_torch(flat: torch.Tensor, first_block: int, kind: int, result: torch.Tensor) -> None:
    counts, values = twin.on_device(flat, first_block, kind)
    result[:2] += counts
    known = result[2:].view(torch.float64)
    known[0] += values[0]
    known[1] = torch.maximum(known[1], values[1])
