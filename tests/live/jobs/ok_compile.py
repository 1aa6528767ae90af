"""torch.compile (inductor, C++) in the first step; a compilation takes its time."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Mixer(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.LayerNorm(dim)

    def forward(self, x):
        return x + self.b(torch.nn.functional.gelu(self.a(self.norm(x))))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(*[Mixer() for _ in range(3)]))
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(250):
        x = torch.randn(8, 32)
        loss = (compiled(x) - x.roll(1, 1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
