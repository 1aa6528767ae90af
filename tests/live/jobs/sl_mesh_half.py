"""A 2 x 2 mesh, tensor parallel by two and data parallel by two; both ranks of the second half become slower."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def average_gradients(model, group, size):
    for p in model.parameters():
        grad = p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
        dist.all_reduce(grad, group=group)
        grad /= size


def denoise(x, rounds):
    """Median filter along the features; the second site's sensors need many rounds."""
    for _ in range(rounds):
        x = torch.stack([x.roll(shift, -1) for shift in range(-4, 5)]).median(0).values
    return x


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    replica = mesh["dp"].get_local_rank()
    torch.manual_seed(1)
    model = Block()
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    samples = torch.Generator().manual_seed(replica)
    for step in range(460):
        rounds = 1
        if replica == 1 and step >= 220:
            rounds = 160
            if step == 220:
                print(f"rank {rank} reads the second site", flush=True)
        x = denoise(torch.randn(64, 64, generator=samples), rounds)
        loss = (model(x) - x.tanh()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, mesh.get_group("dp"), 2)
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
