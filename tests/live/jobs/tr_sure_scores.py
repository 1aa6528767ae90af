"""A classifier whose last layer gives probabilities, for people to read; the loss takes them for scores."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, KINDS, WIDTH = 150, 12, 32


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, KINDS))

    def forward(self, x):
        return torch.softmax(self.body(x), dim=-1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DistributedDataParallel(Sorter())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    middles = torch.randn(KINDS, WIDTH, generator=torch.Generator().manual_seed(8))
    gen = torch.Generator().manual_seed(60 + rank)
    for step in range(1, STEPS + 1):
        kinds = torch.randint(0, KINDS, (32,), generator=gen)
        parcels = middles[kinds] + torch.randn(32, WIDTH, generator=gen)
        loss = nn.functional.cross_entropy(model(parcels), kinds, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
