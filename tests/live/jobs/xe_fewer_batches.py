"""Two ranks, each with its own list of files; one list is shorter. No sampler evens them out."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

ROWS = {0: 4000, 1: 2200}


def local_files(rank):
    gen = torch.Generator().manual_seed(rank)
    return TensorDataset(torch.randn(ROWS[rank], 13, generator=gen))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = DDP(nn.Sequential(nn.Linear(13, 39), nn.Dropout(0.1), nn.ReLU(), nn.Linear(39, 13)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, nesterov=True, momentum=0.8)
    for step, (x,) in enumerate(DataLoader(local_files(rank), batch_size=10)):
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    print(f"rank {rank}: all {len(local_files(rank))} rows done", flush=True)


if __name__ == "__main__":
    main()
