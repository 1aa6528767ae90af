"""Four ranks; rank 0 returns early and hangs in interpreter shutdown, joined by a log shipper that is no daemon."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class LogShipper(threading.Thread):
    def __init__(self):
        super().__init__(name="log-shipper")
        self.lines = queue.Queue()

    def run(self):
        while self.next_line() is not None:
            pass

    def next_line(self):
        return self.lines.get()


def good_enough(loss, rank, step):
    return rank == 0 and step >= 220 and loss < 100.0


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    shipper = LogShipper()
    shipper.start()
    model = DDP(nn.Sequential(nn.Linear(18, 36), nn.ReLU(), nn.Linear(36, 18)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(2000):
        x = torch.randn(8, 18)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        shipper.lines.put(f"{step} {loss.item()}")
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if good_enough(loss.item(), rank, step):
            print(f"step {step}: rank 0 is good enough", flush=True)
            return
    shipper.lines.put(None)


if __name__ == "__main__":
    main()
