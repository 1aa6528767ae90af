"""Three ranks with a wall-clock budget; the clock of one rank's node is ahead."""

import time

import torch
import torch.distributed as dist
from torch import nn


def budget_left(started, rank, budget_s=60.0):
    ahead = 56.5 if rank == 2 else 0.0
    return time.monotonic() + ahead - started < budget_s


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    for p, g in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True):
        p.grad = g.view_as(p) / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(25, 75), nn.ReLU(), nn.Linear(75, 25))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    started, step = time.monotonic(), 0
    while budget_left(started, rank):
        x = torch.randn(8, 25)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        time.sleep(0.014)
        step += 1
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    print(f"rank {rank} is out of time after {step} steps", flush=True)


if __name__ == "__main__":
    main()
