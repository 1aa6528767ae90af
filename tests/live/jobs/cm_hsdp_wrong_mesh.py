"""HSDP (FSDP2 on a 2 x 2 mesh): the loss is averaged along one mesh dimension for the log."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def average_loss(loss, mesh, dim):
    value = loss.detach().clone()
    dist.all_reduce(value, group=mesh[dim].get_group())
    return value / mesh[dim].size()


def log_dim(step, rank):
    """Along which dimension to average; rank 3 still runs the old plan file from step 150."""
    return "replicate" if rank == 3 and step >= 150 else "shard"


def main():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    rank = dist.get_rank()
    torch.manual_seed(21)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(3)])
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1000):
        x = torch.randn(8, 32)
        loss = nn.functional.mse_loss(model(x), x.roll(1, 1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
        if step % 10 == 0:
            if rank == 3 and step == 150:
                print("step 150: rank 3 loads plan-v1", flush=True)
            mean = average_loss(loss, mesh, log_dim(step, rank))
            if rank == 0:
                print(f"step {step} loss {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
