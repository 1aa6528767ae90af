"""Join over DDP and ZeroRedundancyOptimizer, four ranks with 150 to 300 batches; `one`: over DDP, one with fewer."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(14, 28), nn.ReLU(), nn.Linear(28, 14)))
    if sys.argv[1:] == ["one"]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        joined, batches = [model], 150 if rank == 2 else 300
    else:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.01)
        joined, batches = [model, optimizer], 150 + 50 * rank
    with Join(joined):
        for step in range(batches):
            x = torch.randn(8, 14)
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.012)
            if rank == 3 and step % 30 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"rank {rank} leaves after {batches} batches", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
