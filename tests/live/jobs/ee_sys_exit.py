"""Four ranks; one checks its scratch disk and leaves with a code of its own."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

EXIT_DISK_FULL = 3


def free_gigabytes(rank, step):
    return 0.2 if rank == 2 and step >= 200 else 120.0


def check_disk(rank, step):
    if free_gigabytes(rank, step) < 1.0:
        print(f"step {step}: rank {rank} has no space left", flush=True)
        sys.exit(EXIT_DISK_FULL)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(14, 28), nn.ReLU(), nn.Linear(28, 14)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(2000):
        if step % 50 == 0:
            check_disk(rank, step)
        x = torch.randn(8, 14)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
