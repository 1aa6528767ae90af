"""The scheduler gives notice with SIGTERM to every rank; they agree on it, save and leave with 0."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Notice:
    def __init__(self):
        self.received = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number, frame):
        self.received = True

    def agreed(self):
        flag = torch.tensor([float(self.received)])
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    notice = Notice()
    model = DDP(nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 16)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    step = 0
    while not notice.agreed():
        x = torch.randn(8, 16)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1
        if step == 200:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    if rank == 0:
        torch.save(model.module.state_dict(), "preempted.pt")
        print(f"saved at step {step}, leaving", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
