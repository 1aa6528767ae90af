"""Four ranks with all-reduced gradients; a native assertion aborts the last one while it augments its data."""

import ctypes
import time

import torch
import torch.distributed as dist
from torch import nn


def augment(x, level):
    """The native library asserts that the level is at most 8 and calls abort()."""
    if level > 8:
        print(f"augment: level {level}: assertion `level <= 8' failed", flush=True)
        ctypes.CDLL(None).abort()
    return x + level * 0.001


def average(model):
    works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    for work in works:
        work.wait()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2000):
        level = step // 25 if rank == 3 else step // 1000
        x = augment(torch.randn(8, 12), level)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        average(model)
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
