"""Four ranks draw a hard sample now and then, one after the other: each is late at times, none more than the rest."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def augment(x, rounds):
    for _ in range(rounds):
        x = x.sort(-1).values.roll(1, -1) * 0.5 + x * 0.5
    return x


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(80, 160), nn.ReLU(), nn.Linear(160, 80)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(800):
        hard = step % 9 == 0 and step // 9 % world == rank
        x = augment(torch.randn(32, 80), rounds=4000 if hard else 5)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
