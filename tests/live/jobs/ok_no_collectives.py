"""Four independent seeds under one launcher, no collective after the start, of quite different lengths."""

import time

import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(9, 27), nn.ReLU(), nn.Linear(27, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 120 + 90 * rank
    for step in range(steps):
        x = torch.randn(16, 9)
        loss = (model(x)[:, 0] - x.sum(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if step % 40 == 0:
            print(f"seed {rank} step {step} loss {loss.item():.4f}", flush=True)
    print(f"seed {rank} done", flush=True)


if __name__ == "__main__":
    main()
