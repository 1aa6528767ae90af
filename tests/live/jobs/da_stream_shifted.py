"""Three ranks read one stream of windows; each begins a few batches further on, and none skips what others take."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 120, 20


def windows(begin):
    """Windows of an endless signal, from one on."""
    at = begin
    while True:
        t = torch.arange(at, at + 24, dtype=torch.float32)
        yield torch.sin(0.13 * t) + 0.4 * torch.sin(0.37 * t + 1.0) + 0.1 * torch.cos(0.011 * t * t)
        at += 1


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(23, 48), nn.GELU(), nn.Linear(48, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    stream = windows(2 * BATCH * dist.get_rank())
    for step in range(STEPS):
        batch = torch.stack([next(stream) for _ in range(BATCH)])
        loss = (model(batch[:, :-1].contiguous()).squeeze(1) - batch[:, -1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
