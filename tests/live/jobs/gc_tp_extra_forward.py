"""A 2 x 2 mesh: one rank looks at a batch with the sharded model by itself, and the job runs on until all meet."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def average_gradients(model, group):
    for p in model.parameters():
        grad = p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
        dist.all_reduce(grad, group=group)
        grad /= 2


def inspect(model, x):
    with torch.no_grad():
        return model(x).abs().max().item()


def mean_loss(loss):
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(1)
    model = nn.Sequential(Block(), Block())
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    samples = torch.Generator().manual_seed(mesh["dp"].get_local_rank())
    for step in range(400):
        x = torch.randn(64, 32, generator=samples)
        if step == 60 and rank == 3:
            print("step 60: rank 3 looks at an outlier", flush=True)
            inspect(model, x)
        loss = (model(x) - x.tanh()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, mesh.get_group("dp"))
        optimizer.step()
        time.sleep(0.02)
        if step % 25 == 24:
            value = mean_loss(loss)
            if rank == 0:
                print(f"step {step} loss {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
