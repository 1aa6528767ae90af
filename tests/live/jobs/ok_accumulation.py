"""Gradient accumulation with no_sync, and a validation all-reduce: nothing is wrong."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 30)))
    optimizer = torch.optim.AdamW(model.parameters())
    factor = 8
    for micro in range(640):
        x = torch.randn(4, 30)
        last = (micro + 1) % factor == 0
        with contextlib.nullcontext() if last else model.no_sync():
            loss = (model(x) - x).pow(2).mean() / factor
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        time.sleep(0.012)
        if (micro + 1) % 80 == 0:
            total = loss.detach().clone()
            dist.all_reduce(total)
            if rank == 0:
                print(f"micro step {micro} loss {total.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
