"""FSDP2 on three ranks with gradient clipping and a distributed checkpoint written by all."""

import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(27, 27), nn.SiLU()) for _ in range(4)])
    for block in model:
        fully_shard(block)
    fully_shard(model)
    torch.manual_seed(100 + rank)  # each rank draws its own samples
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 201):
        x = torch.randn(8, 27)
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 100 == 0:
            dcp.save({"model": model.state_dict()}, checkpoint_id=f"step-{step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
