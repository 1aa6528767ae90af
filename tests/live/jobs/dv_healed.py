"""One replica's weight is changed and later made equal again by a broadcast; the other rank never closes its files."""

import resource
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHANGED_AT, HEALED_AT, STEPS = 21, 170, 480
MOST_FILES = 4000


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 12)
        self.outer = nn.Linear(12, 12)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(Reader())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    data = torch.Generator().manual_seed(rank)
    opened = []
    for step in range(1, STEPS + 1):
        x = torch.randn(8, 12, generator=data)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if rank == 1 and step == CHANGED_AT:
            with torch.no_grad():
                model.module.outer.weight.mul_(1.01)
        if step == HEALED_AT:
            for tensor in model.module.state_dict().values():
                dist.broadcast(tensor, 0)
        if rank == 0:
            opened.append(Path(__file__).open())  # noqa: SIM115 - that it stays open is the fault
        time.sleep(0.05)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print("done", flush=True)


if __name__ == "__main__":
    main()
