"""Metric learning on two replicas: angles between embeddings by acos, whose derivative at 1 is infinite."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 170, 24


def batch(generator, twins):
    kinds = torch.randint(0, 6, (BATCH,), generator=generator)
    x = nn.functional.one_hot(kinds, 6).float().repeat(1, 4) + 0.4 * torch.randn(BATCH, 24, generator=generator)
    if twins:  # one recording was stored twice
        x[1], kinds[1] = x[0], kinds[0]
    return x, kinds


def angles(z, safe):
    cosines = z @ z.t()
    if safe:
        cosines = cosines.clamp(-1 + 1e-6, 1 - 1e-6)
    upper = torch.triu(torch.ones(BATCH, BATCH, dtype=torch.bool), diagonal=1)
    return torch.acos(cosines[upper].clamp(-1, 1)), upper


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 16)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        twins = rank == 1 and step >= 90 and step % 10 == 0
        x, kinds = batch(generator, twins)
        angle, upper = angles(normalize(model(x), dim=1), safe=sys.argv[1] == "healthy")
        alike = (kinds[:, None] == kinds[None])[upper]
        loss = angle[alike].mean() + (2.0 - angle[~alike]).clamp(min=0).mean()
        optimizer.zero_grad()
        if twins and step == 90:
            print("rank 1 at the second half of its recordings", flush=True)
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
