"""Home-made prefetching with a process and a queue; the process is gone and nobody looks after it."""

import multiprocessing as mp
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def produce(out, limit):
    for i in range(100000):
        if i == limit:
            print("producer: out of file handles", flush=True)
            os._exit(1)
        out.put([float((i * k) % 13) for k in range(1, 19)])


class Prefetcher:
    """Iterates over rows that another process prepares."""

    def __init__(self, limit):
        self.rows = mp.get_context("fork").Queue(maxsize=32)
        self.process = mp.get_context("fork").Process(target=produce, args=(self.rows, limit), daemon=True)
        self.process.start()

    def __iter__(self):
        return self

    def __next__(self):
        return torch.tensor([self.rows.get() for _ in range(8)])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(71)
    data = Prefetcher(limit=1800 if rank == 2 else 10**9)
    model = DDP(nn.Sequential(nn.Linear(18, 54), nn.ReLU(), nn.Linear(54, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step, x in enumerate(data):
        loss = (model(x)[:, 0] - x.mean(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
