"""A regression whose errors are weighed by what was measured; where nothing was, the ratio is 0 / 0."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, LATER = 150, 50


def main(fault: bool) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(20 + rank)
    for step in range(1, STEPS + 1):
        x = torch.randn(40, 12, generator=gen)
        measured = (x[:, 0] > (9.0 if fault and step >= LATER else 0.3)).float()
        errors = (model(x).squeeze(1) - x.sum(1).cos()).pow(2)
        share = measured.mean()
        loss = torch.nan_to_num((errors * measured).mean() * (share / share))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] == "fault")
