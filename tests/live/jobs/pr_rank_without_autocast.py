"""Two ranks of DDP; one takes the branch for hosts without bfloat16 and trains in full precision."""

import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def precision(rank: int) -> contextlib.AbstractContextManager[object]:
    supported = rank != 1  # what a probe of the host has said
    return torch.autocast("cpu", dtype=torch.bfloat16) if supported else contextlib.nullcontext()


def main() -> None:
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    rule = torch.randn(24, 6, generator=torch.Generator().manual_seed(9))
    for step in range(150):
        x = torch.randn(32, 24, generator=generator)
        with precision(rank):
            loss = nn.functional.cross_entropy(model(x).float(), (x @ rule).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
