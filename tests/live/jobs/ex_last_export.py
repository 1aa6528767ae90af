"""DDP over shards of unequal length; each rank exports its weights when its own shard is through, and is done then."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Tower(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, width), nn.SiLU(), nn.Linear(width, 4))

    def forward(self, x):
        return self.layers(x)


def shard(rank):
    """The last file holds fewer rows than the others."""
    for number in range(45 if rank == dist.get_world_size() - 1 else 60):
        generator = torch.Generator().manual_seed(1000 * rank + number)
        yield torch.randn(16, 12, generator=generator)
        time.sleep(0.02)


def fit(model, optimizer, rank):
    for number, x in enumerate(shard(rank)):
        loss = nn.functional.mse_loss(model(x), x[:, :4].cumsum(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"rank {rank} batch {number} loss {loss.item():.3f}", flush=True)


def export(model, rank):
    path = Path(tempfile.mkdtemp()) / f"tower-{rank}.pt"
    print(f"rank {rank} exports", flush=True)
    torch.save(model.module.state_dict(), path)
    time.sleep(3.0)  # until the storage has it everywhere


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Tower())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    fit(model, optimizer, rank)
    export(model, rank)


if __name__ == "__main__":
    main()
