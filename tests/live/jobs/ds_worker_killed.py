"""Two ranks; one loader worker grows and is killed (here by itself, as the kernel would)."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    """3-D scans; decoding one of them needs far more memory than the machine has."""

    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 6000

    def decode(self, i):
        if self.rank == 1 and i == 1500:
            print(f"decoding scan {i} (41 GB)", flush=True)
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(1, 6, 6, 6, generator=torch.Generator().manual_seed(i))

    def __getitem__(self, i):
        return self.decode(i), i % 3


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(44)
    loader = DataLoader(Volumes(rank), batch_size=6, num_workers=2)
    model = DDP(nn.Sequential(nn.Conv3d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (scan, label) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(scan), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
