"""One rank collects garbage and compacts its cache for several seconds of pure CPU time."""

import gc
import itertools
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Node:
    __slots__ = ("left", "right")


def churn(seconds):
    """Cyclic garbage, collected again and again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        nodes = [Node() for _ in range(60000)]
        for a, b in itertools.pairwise(nodes):
            a.right, b.left = b, a
        del nodes, a, b
        gc.collect()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 301):
        x = torch.randn(8, 12)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if rank == 2 and step == 150:
            churn(7.0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
