"""Tensor parallel within, FSDP2 across pairs, on a 2 x 2 mesh; valid tokens are counted over the data dimension."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH, ROWS = 32, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.w1, self.w2 = nn.Linear(WIDTH, 128), nn.Linear(128, WIDTH)

    def forward(self, x):
        return x + self.w2(nn.functional.silu(self.w1(self.norm(x))))


class Plan:
    """Which mesh dimension each quantity is reduced over; a rank reads its own copy again at each refresh."""

    def __init__(self):
        self.tokens = "dp"

    def refresh(self, rank, step):
        if rank == 1 and step == 140:
            print("step 140: rank 1 reads plan 7", flush=True)
            self.tokens = "tp"


def build(mesh):
    model = nn.Sequential(*[Block() for _ in range(3)])
    for block in model:
        parallelize_module(block, mesh["tp"], {"w1": ColwiseParallel(), "w2": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


def make_batch(step, replica):
    """The same batch for both ranks of a replica; rows of padding differ from batch to batch."""
    generator = torch.Generator().manual_seed(1000 * step + replica)
    x = torch.randn(ROWS, WIDTH, generator=generator)
    valid = torch.rand(ROWS, generator=generator) > 0.2
    return x, valid


def count_tokens(valid, mesh, dimension):
    count = valid.sum().float()
    dist.all_reduce(count, group=mesh[dimension].get_group())
    return count.clamp(min=1)


def train_step(model, optimizer, batch, mesh, plan):
    x, valid = batch
    count = count_tokens(valid, mesh, plan.tokens)
    error = (model(x) - x.flip(1)).square().mean(1)
    loss = (error * valid).sum() / count
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def main():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    rank, replica = dist.get_rank(), mesh["dp"].get_local_rank()
    torch.manual_seed(3)
    model, plan = build(mesh), Plan()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1200):
        if step % 20 == 0:
            plan.refresh(rank, step)
        loss = train_step(model, optimizer, make_batch(step, replica), mesh, plan)
        time.sleep(0.01)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
