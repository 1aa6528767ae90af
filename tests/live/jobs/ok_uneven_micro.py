"""Accumulation until a number of tokens is reached: each rank takes as many micro-steps as its documents need."""

import random
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def pack(rng, budget=900):
    """Lengths of the documents that fill one update."""
    lengths = []
    while sum(lengths) < budget:
        lengths.append(rng.choice((60, 90, 150, 300)))
    return lengths


def update(model, optimizer, lengths):
    for i, length in enumerate(lengths):
        with nullcontext() if i == len(lengths) - 1 else model.no_sync():
            x = torch.randn(length, 64)
            loss = (model(x) - x).pow(2).mean() * length / sum(lengths)
            loss.backward()
        time.sleep(0.004)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    rng = random.Random(rank)
    model = DDP(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(650):
        loss = update(model, optimizer, pack(rng))
        if rank == 0 and step % 40 == 0:
            print(f"update {step} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
