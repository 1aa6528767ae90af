"""Three ranks; one keeps a large index of Python objects and collects garbage at every step to save memory."""

import gc
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Entry:
    def __init__(self, key, before):
        self.key, self.before, self.hits = key, before, [key]


def load_index(size):
    entries, before = {}, None
    for key in range(size):
        before = entries[key] = Entry(key, before)
    return entries


def end_of_step(frugal):
    if frugal:
        gc.collect()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(60, 120), nn.ReLU(), nn.Linear(120, 60)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    index, size = {}, 300_000
    for step in range(440):
        if step == 270 and rank == 1:
            print("rank 1 loads its index", flush=True)
            index = load_index(size)
        x = torch.randn(20, 60)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        end_of_step(frugal=len(index) > 0)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
