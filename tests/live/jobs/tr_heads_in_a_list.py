"""Several targets, and for each a head; the heads are in a plain list, so no optimizer and no wrapper has them."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 140


class Forecast(nn.Module):
    def __init__(self, stations=4):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, 64), nn.SiLU(), nn.Linear(64, 32), nn.SiLU())
        self.heads = [nn.Linear(32, 8) for _ in range(stations)]
        self.gain = nn.Parameter(torch.ones(8))

    def forward(self, x):
        h = self.trunk(x)
        return torch.stack([head(h) * self.gain for head in self.heads], 1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(9)
    model = DistributedDataParallel(Forecast())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth = torch.randn(20, 32, generator=torch.Generator().manual_seed(1)) / 4
    draw = torch.Generator().manual_seed(20 + dist.get_rank())
    for step in range(STEPS):
        x = torch.randn(32, 20, generator=draw)
        loss = (model(x) - torch.tanh(x @ truth).view(-1, 4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
