"""An ordinary DDP training, but for one sample of rank 1: its file never answers, as on a stalled file server."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STALLED_SAMPLE = 100  # a multiple of 4 (the batch) places it first in its batch: the fault comes at step 25
STEPS = 500


class Samples(Dataset[torch.Tensor]):
    """Samples as a job would read them, one after the other, from this rank's shard."""

    def __init__(self, rank: int, folder: Path) -> None:
        self._rank = rank
        self._stalled = folder / "sample.bin"
        os.mkfifo(self._stalled)  # opening it blocks, since nobody ever writes

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._rank == 1 and index == STALLED_SAMPLE:
            return self._read(self._stalled)
        return torch.randn(64, generator=torch.Generator().manual_seed(index))

    def _read(self, path: Path) -> torch.Tensor:
        with path.open("rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.float32)


def train(folder: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, batch in enumerate(DataLoader(Samples(rank, folder), batch_size=4)):
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        train(Path(name))
