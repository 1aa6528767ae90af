"""One rank sleeps for 6 s between two steps, twice; the others wait in backward and then go on."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def cool_down(step, rank):
    if rank == 1 and step in (120, 200):
        print(f"step {step}: rank {rank} cools down", flush=True)
        time.sleep(6)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(31, 62), nn.ReLU(), nn.Linear(62, 31)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(280):
        cool_down(step, rank)
        x = torch.randn(8, 31)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
