"""Four ranks; the last rank of the node stages the next shard and waits until the loader service has confirmed it."""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def stage_shard(shard):
    """Ask for a shard by a request file; the service answers with a `.ready` file."""
    request, ready = Path(f"{shard}.request"), Path(f"{shard}.ready")
    request.touch()
    while not ready.exists():
        time.sleep(0.2)


def confirm(shard):
    """The service in this demo set-up: rank 0 plays it, after the step."""
    Path(f"{shard}.ready").touch()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(30, 60), nn.GELU(), nn.Linear(60, 3)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(1, 3000):
        if step % 60 == 0:
            shard = f"shard{step // 60}"
            if rank == 0 and step != 240:
                confirm(shard)
            if rank == 3:
                print(f"step {step}: rank 3 stages {shard}", flush=True)
                stage_shard(shard)
        loss = model(torch.randn(8, 30)).logsumexp(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 240 == 0:
            confirm(f"shard{step // 60}")
        time.sleep(0.012)
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
