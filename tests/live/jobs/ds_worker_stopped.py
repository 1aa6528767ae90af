"""Two ranks; a resource guard of the host stops (SIGSTOP) a loader worker of rank 1 and forgets it."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def slow_collate(items):
    time.sleep(0.01)
    return torch.stack([x for (x,) in items])


def guard(pids, after_s):
    time.sleep(after_s)
    print(f"guard: stopping {len(pids)} process over its quota", flush=True)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def fetch_batches(loader, rank):
    batches = iter(loader)
    if rank == 1:
        pids = [worker.pid for worker in batches._workers]
        threading.Thread(target=guard, args=(pids, 3.5), daemon=True).start()
    yield from batches


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31)
    loader = DataLoader(TensorDataset(torch.randn(20000, 21)), batch_size=8, num_workers=1, collate_fn=slow_collate)
    model = DDP(nn.Sequential(nn.Linear(21, 63), nn.ReLU(), nn.Linear(63, 21)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, x in enumerate(fetch_batches(loader, rank)):
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
