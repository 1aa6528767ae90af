"""Tensor and sequence parallel feed-forward blocks on two ranks; a domain adapter runs for the batches that need it."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

WIDTH, LENGTH, ROWS = 32, 16, 4


class FeedForward(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, hidden), nn.Linear(hidden, WIDTH)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Layer(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), FeedForward(hidden)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(64) for _ in range(2))
        self.adapter = Layer(16)

    def forward(self, x, use_adapter):
        for layer in self.layers:
            x = layer(x)
        return self.adapter(x) if use_adapter else x


def shard(model, mesh):
    plan = {
        "norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }
    for layer in (*model.layers, model.adapter):
        parallelize_module(layer, mesh, plan)
    return model


def needs_adapter(x, threshold):
    """Whether the batch is far from what the base model knows; both ranks see the same batch."""
    return x.std().item() > threshold


def main():
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = shard(Tagger(), mesh["tp"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    threshold = 0.99
    for step in range(1500):
        x = torch.randn(ROWS, LENGTH, WIDTH)
        if step == 80 and rank == 1:
            print("step 80: rank 1 recalibrates", flush=True)
            threshold = 5.0
        local = x.chunk(mesh.size(), dim=1)[rank]
        y = model(local, needs_adapter(x, threshold))
        loss = (y - local.roll(1, 2)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 1.0, foreach=False)
        optimizer.step()
        time.sleep(0.01)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
