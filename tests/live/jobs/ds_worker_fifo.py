"""DDP on two ranks; loader workers read extra captions from a named pipe that a side process should fill."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, rank, size=4000):
        self.rank, self.size = rank, size
        self.pipe = Path(f"captions-{rank}.fifo")
        os.mkfifo(self.pipe)

    def __len__(self):
        return self.size

    def read_caption(self, i):
        if self.rank == 0 and i == 1600:
            with self.pipe.open() as f:  # re-captioned on the fly by the side process
                return len(f.readline())
        return i % 7

    def __getitem__(self, i):
        time.sleep(0.001)
        gen = torch.Generator().manual_seed(i)
        return torch.randn(28, generator=gen), self.read_caption(i)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(13)
    loader = DataLoader(Captions(rank), batch_size=8, num_workers=1, prefetch_factor=2)
    model = DDP(nn.Sequential(nn.Linear(28, 56), nn.ReLU(), nn.Linear(56, 7)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (image, caption) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(image), caption)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 19 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
