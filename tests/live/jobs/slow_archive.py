"""Rank 0 writes to a slow archive after each round, for about as long each time; the others wait at a barrier."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROUNDS, STEPS, ARCHIVE_S = 4, 40, 5.0


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    model = DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    gen = torch.Generator().manual_seed(rank)
    for number in range(ROUNDS):
        for _ in range(STEPS):
            x = torch.randn(32, 16, generator=gen)
            loss = (model(x) - x[:, :4]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        if rank == 0:
            print(f"round {number} loss {loss.item():.4f}", flush=True)
            time.sleep(ARCHIVE_S)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
