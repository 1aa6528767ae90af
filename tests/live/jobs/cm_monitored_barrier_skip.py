"""Evaluation is fenced by monitored_barrier with a timeout; one rank has nothing to evaluate and skips it."""

import datetime
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, shards):
    if not shards:
        return 0.0
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=12), wait_all_ranks=True)
    with torch.no_grad():
        return sum(model.module(s).mean().item() for s in shards)


def fit_batch(model, optimizer):
    x = torch.randn(8, 16)
    loss = (model(x) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    shards = [torch.randn(8, 16) for _ in range(6)]
    for step in range(1, 2000):
        loss = fit_batch(model, optimizer)
        time.sleep(0.014)
        if step % 70 == 0:
            mine = shards[rank :: dist.get_world_size()] if step < 210 else shards[:2][rank : rank + 1]
            if not mine:
                print(f"step {step}: rank {rank} has no evaluation shard", flush=True)
            evaluate(model, mine)
        if rank == 0 and step % 35 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
