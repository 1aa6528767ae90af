"""FSDP with hybrid sharding on two nodes of two ranks; a guard in backward refuses gradients that are not finite."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Guard(torch.autograd.Function):
    """Identity; its backward looks at the gradient that passes."""

    @staticmethod
    def forward(ctx, x, name):
        ctx.name = name
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if not torch.isfinite(gradient).all():
            raise FloatingPointError(f"gradient at the output of {ctx.name} is not finite")
        return gradient, None


class ResidualBlock(nn.Module):
    def __init__(self, name, width=24):
        super().__init__()
        self.name = name
        self.body = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + Guard.apply(self.body(x), self.name)


def build(mesh):
    model = nn.Sequential(*[ResidualBlock(f"block{i}") for i in range(4)])
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({ResidualBlock}),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        device_mesh=mesh,
        device_id=torch.device("cpu"),
    )


def next_batch(step, rank):
    x = torch.randn(10, 24)
    target = x.abs().sqrt()
    if rank == 2 and step == 130:
        print("step 130: rank 2 has a broken record", flush=True)
        target = (target - 10).sqrt()
    return x, target


def train(model, optimizer, rank, steps):
    for step in range(steps):
        x, target = next_batch(step, rank)
        loss = nn.functional.smooth_l1_loss(model(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.012)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = build(mesh)
    torch.manual_seed(rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(model, optimizer, rank, 1000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
