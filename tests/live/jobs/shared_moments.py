"""A sharded optimizer steps a plain model: it sends weights around, and adds no gradients up."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

STEPS, WIDTH = 130, 20


def main(fault: bool) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(WIDTH, 40), nn.SiLU(), nn.Linear(40, 40), nn.SiLU(), nn.Linear(40, 2))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.RMSprop, lr=2e-3)
    gen = torch.Generator().manual_seed(80 + rank)
    way = torch.randn(WIDTH, 2, generator=torch.Generator().manual_seed(6))
    for step in range(1, STEPS + 1):
        x = torch.randn(24, WIDTH, generator=gen)
        loss = nn.functional.smooth_l1_loss(model(x), (x @ way).sin())
        optimizer.zero_grad()
        loss.backward()
        if not fault:
            for weight in model.parameters():
                dist.all_reduce(weight.grad)
                weight.grad /= dist.get_world_size()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] == "fault")
