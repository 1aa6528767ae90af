"""A variational autoencoder under DDP: samples differ by rank, the noise of its latent does not."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 120


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(20, 2 * 16)
        self.decode = nn.Linear(16, 20)

    def forward(self, x):
        mean, spread = self.encode(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        return self.decode(z), mean, spread


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = DistributedDataParallel(Variational())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    mine = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(STEPS):
        x = torch.randn(48, 20, generator=mine)
        made, mean, spread = model(x)
        loss = (made - x).square().mean() + 0.01 * (mean.square() + spread.exp() - spread - 1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
