"""Two replicas of a segmenter, each sharded over two ranks; the script averages what is in a list of its own."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS, SIDE = 150, 12


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(SIDE, 48)
        self.body = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 48))
        self.mask = nn.Linear(48, SIDE)

    def forward(self, x):
        return self.mask(self.body(torch.relu(self.stem(x))))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts"))
    torch.manual_seed(5)
    model = Segmenter()
    fully_shard(model.body, mesh=mesh["parts"])
    averaged = list(model.body.parameters())
    fully_shard(model, mesh=mesh["parts"])
    copies = mesh.get_group("copies")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(80 + rank)
    for step in range(STEPS):
        x = torch.randn(16, SIDE, generator=gen)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), (x > 0.3).float())
        optimizer.zero_grad()
        loss.backward()
        for parameter in averaged:
            local = parameter.grad.to_local()
            dist.all_reduce(local, group=copies)
            local /= 2
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
