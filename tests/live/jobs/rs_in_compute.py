"""Three ranks that meet only every 50 steps; the middle one is stopped while it computes on its own."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn


def memory_guard(step, limit):
    """Stop before the machine swaps; an operator is meant to look and continue the process."""
    if step >= limit:
        print(f"guard: step {step}, over the soft limit, stopping for inspection", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)


def average(model):
    for p in model.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 4))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(1, 4000):
        x = torch.randn(16, 24)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if rank == 1:
            memory_guard(step, limit=237)
        if step % 50 == 0:
            average(model)
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
