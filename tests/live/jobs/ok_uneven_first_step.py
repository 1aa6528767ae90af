"""The first step of each rank takes another time (2, 5 and 8 s): warm caches and cold ones."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def warm_cache(rank):
    table, deadline = torch.zeros(256, 256), time.monotonic() + 2 + 3 * rank
    while time.monotonic() < deadline:
        table += torch.randn(256, 256)
        time.sleep(0.02)
    return table


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(33, 66), nn.ReLU(), nn.Linear(66, 33)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(250):
        if step == 0:
            warm_cache(rank)
        x = torch.randn(8, 33)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
