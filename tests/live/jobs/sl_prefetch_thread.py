"""Two ranks with a prefetching thread of their own; the source of rank 1 answers more and more slowly."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Prefetcher:
    def __init__(self, rank, batches, depth=4):
        self.rank, self.batches, self.queue = rank, batches, queue.Queue(depth)
        threading.Thread(target=self.produce, name="prefetch", daemon=True).start()

    def query(self, number):
        throttled = self.rank == 1 and number >= 270
        if self.rank == 1 and number == 270:
            print("rank 1: feature service is throttled", flush=True)
        time.sleep(0.13 if throttled else 0.005)
        return torch.randn(16, 32, generator=torch.Generator().manual_seed(number * 2 + self.rank))

    def produce(self):
        for number in range(self.batches):
            self.queue.put(self.query(number))
        self.queue.put(None)

    def __iter__(self):
        return iter(self.queue.get, None)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step, x in enumerate(Prefetcher(rank, 420)):
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.025)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
