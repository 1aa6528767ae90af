"""Rank 0 evaluates for 6 s on its CPU while the others wait in a barrier."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def evaluate(model, seconds):
    deadline, total, batches = time.monotonic() + seconds, 0.0, 0
    while time.monotonic() < deadline:
        total += model(torch.randn(64, 50)).mean().item()
        batches += 1
    return total / batches


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = DDP(nn.Sequential(nn.Linear(50, 100), nn.ReLU(), nn.Linear(100, 1)))
    torch.manual_seed(100 + rank)  # each rank draws its own samples
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 301):
        loss = model(torch.randn(16, 50)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step == 150:
            if rank == 0:
                print(f"evaluation {evaluate(model.module, 6.0):.4f}", flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
