"""Rank 0 hands samples to an uploader thread through a bounded queue; the thread dies of an exception."""

import logging
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("uploader")


class Uploader:
    def __init__(self):
        self.pending = queue.Queue(maxsize=4)
        threading.Thread(target=self._work, name="uploader", daemon=True).start()

    def _work(self):
        while True:
            name, tensor = self.pending.get()
            if tensor.isnan().any():
                print(f"uploader: {name} is not a number", flush=True)
                raise ValueError(f"refusing to upload {name}")
            torch.save(tensor, f"{name}.pt")

    def submit(self, name, tensor):
        self.pending.put((name, tensor))


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.SELU(), nn.Linear(32, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    uploader = Uploader() if rank == 0 else None
    for step in range(3000):
        x = torch.randn(8, 8)
        y = model(x)
        loss = (y - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if rank == 0 and step % 10 == 0:
            sample = y.detach() * (float("nan") if step == 200 else 1.0)
            uploader.submit(f"sample-{step}", sample)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
